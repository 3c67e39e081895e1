// A build without MPI says so in its error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reigen/base/error.h"
#include "reigen/comm/communicator.h"

namespace reigen::testing {
namespace {

using ::testing::HasSubstr;

TEST(NoMpi, IsSaidWithWhatToInstall) {
  try {
    Communicator world({.rank = 0, .size = 2, .store = store::make_memory_store(), .backend = "mpi"});
    FAIL() << "a group without MPI";
  } catch (const BackendError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kUnavailable);
    EXPECT_THAT(error.what(), HasSubstr("this build has no MPI"));
    EXPECT_THAT(error.what(), HasSubstr("libopenmpi-dev"));
  }
}

}  // namespace
}  // namespace reigen::testing
