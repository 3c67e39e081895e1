// Without a device, and without NCCL: both are said, with what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reigen/base/error.h"
#include "reigen/comm/communicator.h"

namespace reigen::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(Nccl, AMissingDeviceOrBuildIsSaid) {
  try {
    Communicator world({.rank = 0,
                        .size = 1,
                        .store = store::make_memory_store(),
                        .backend = "nccl",
                        .join_timeout = std::chrono::seconds(20)});
    world.barrier();  // there is a device
  } catch (const BackendError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kUnavailable);
    // A build without the headers; a machine without the libraries; one without a GPU.
    EXPECT_THAT(error.what(), AnyOf(HasSubstr(REIGEN_TEST_NCCL_MESSAGE), HasSubstr("could not be opened")));
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("nvidia-smi"), HasSubstr("NCCL_ROOT"), HasSubstr("CUDA_HOME")));
  }
}

}  // namespace
}  // namespace reigen::testing
