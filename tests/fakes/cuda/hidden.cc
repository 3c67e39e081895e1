// A part of the stand-in that a program opens as a library. It hides device memory from the program from the start.
#include "fakes/cuda/stand_in.h"

namespace reigen::testing::stand_in {

namespace {

[[maybe_unused]] const bool kHidden = [] {
  hide_memory();
  return true;
}();

}  // namespace

}  // namespace reigen::testing::stand_in
