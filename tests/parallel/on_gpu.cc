// Lets the tests of this program run their ranks on GPUs. LibTorch's device "cuda" and CUDA are the stand-ins of
// tests/fakes/: an access by the host to a GPU's memory is SIGSEGV.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes/cuda/stand_in.h"
#include "harness/filter.h"
#include "parallel/oracle.h"

namespace reigen::testing_oracle {
namespace {

[[maybe_unused]] const bool kPrepared = [] {
  testing::stand_in::hide_memory();
  testing::stand_in::be_lazy();
  at::set_num_threads(1);  // the stand-in computes on the thread that runs backward
  return on_gpu = true;
}();

// CTest runs this program with the filter of CMakeLists.txt.
TEST(OnGpu, EachTermOfTheFilterSelectsACase) { EXPECT_THAT(tests::idle_terms(), ::testing::IsEmpty()); }

// The suites that only this program has are in the filter too.
TEST(OnGpu, EverySuiteForADeviceIsSelected) {
  EXPECT_THAT(tests::left_out({"Device", "OnAGpu"}), ::testing::IsEmpty());
}

}  // namespace
}  // namespace reigen::testing_oracle
