// Lets the runs of TrainerTest in this program train on GPUs. LibTorch's device "cuda" and CUDA are the stand-ins of
// tests/fakes/: an access by the host to a GPU's memory is SIGSEGV.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakes/cuda/stand_in.h"
#include "harness/filter.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

[[maybe_unused]] const bool kPrepared = [] {
  testing::stand_in::hide_memory();
  testing::stand_in::be_lazy();
  return on_gpu = true;
}();

// CTest runs this program with the filter of CMakeLists.txt.
TEST(OnGpu, EachTermOfTheFilterSelectsACase) { EXPECT_THAT(tests::idle_terms(), ::testing::IsEmpty()); }

// The suites that only this program has are in the filter too.
TEST(OnGpu, EverySuiteForADeviceIsSelected) {
  EXPECT_THAT(tests::left_out({"Device", "Steady", "DdpBench"}), ::testing::IsEmpty());
}

}  // namespace
}  // namespace reigen::train
