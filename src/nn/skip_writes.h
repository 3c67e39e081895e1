// While one lives, operations of this thread that would write into a tensor without memory do nothing, and so do
// fill_uniform() and fill_normal(): what sets the values of a whole model sets those that have memory.
// Thread rule: for the thread that makes it.
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

// Whether such operations do nothing on this thread: while one lives, and while a model is made without memory.
bool skips_writes();

}  // namespace reigen::nn
