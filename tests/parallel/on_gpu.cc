// Lets the tests of this program run their ranks on GPUs. LibTorch's device "cuda" and CUDA are the stand-ins of
// tests/fakes/: an access by the host to a GPU's memory is SIGSEGV.
#include <chrono>

#include "fakes/cuda/stand_in.h"
#include "parallel/oracle.h"

namespace reigen::testing_oracle {
namespace {

[[maybe_unused]] const bool kPrepared = [] {
  testing::stand_in::hide_memory();
  testing::stand_in::delay_streams(std::chrono::microseconds(100));
  at::set_num_threads(1);  // the stand-in computes on the thread that runs backward
  return on_gpu = true;
}();

}  // namespace
}  // namespace reigen::testing_oracle
