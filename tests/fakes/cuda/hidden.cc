// In the stand-in that a program opens as a library: its devices' memory is out of the program's reach from the start.
#include "fakes/cuda/stand_in.h"

namespace reigen::testing::stand_in {

namespace {

[[maybe_unused]] const bool kHidden = [] {
  hide_memory();
  return true;
}();

}  // namespace

}  // namespace reigen::testing::stand_in
