// While a SkipWrites lives, operations of this thread that would write into a tensor without memory do nothing. The
// same holds for fill_uniform() and fill_normal(). So code that sets the values of a whole model sets only those that
// have memory.
// Thread rule: a SkipWrites applies to the thread that makes it.
#pragma once

#include <memory>

namespace reigen::nn {

class SkipWrites {
 public:
  SkipWrites();
  ~SkipWrites();
  SkipWrites(const SkipWrites&) = delete;  // one scope
  SkipWrites& operator=(const SkipWrites&) = delete;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

// Whether such operations do nothing on this thread. This is so while a SkipWrites lives, or while a model is made
// without memory.
bool skips_writes();

}  // namespace reigen::nn
