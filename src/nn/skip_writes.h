// While a SkipWrites lives, operations of this thread that would write into a tensor without memory do nothing.
// fill_uniform() and fill_normal() do nothing for such a tensor either. So code that sets the values of a whole model
// sets only the values of tensors that have memory.
// Thread rule: a SkipWrites applies to the thread that makes it.
#pragma once

#include <memory>

namespace reigen::nn {

class SkipWrites {
 public:
  SkipWrites();
  ~SkipWrites();
  SkipWrites(const SkipWrites&) = delete;  // an object belongs to one scope
  SkipWrites& operator=(const SkipWrites&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

// Whether writes into tensors without memory do nothing on this thread. This is true while a SkipWrites or a
// WithoutMemory lives.
bool skips_writes();

}  // namespace reigen::nn
