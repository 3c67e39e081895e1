// If there is no device, or no NCCL, the error says so and says what to do.
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
    world.barrier();  // this machine has a device
  } catch (const BackendError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kUnavailable);
    // The build may lack the headers, or the machine the libraries or a GPU.
    EXPECT_THAT(error.what(), AnyOf(HasSubstr(REIGEN_TEST_NCCL_MESSAGE), HasSubstr("could not be opened")));
    EXPECT_THAT(error.what(), AnyOf(HasSubstr("reigen devices"), HasSubstr("NCCL_ROOT"), HasSubstr("CUDA_HOME")));
  }
}

}  // namespace
}  // namespace reigen::testing
