#include "tensor/memory/disk_tensor.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "reigen/base/error.h"
#include "reigen/runtime/init.h"

namespace reigen::tensor {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DiskTensors : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("reigen_disk_tensor_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

std::int64_t blocks_of_mappings(const char* word) {
  std::ifstream maps("/proc/self/maps");
  std::int64_t found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find(word) != std::string::npos ? 1 : 0;
  return found;
}

TEST_F(DiskTensors, AreZeroHoldWhatIsWrittenAndLeaveNothingBehind) {
  {
    const at::Tensor tensor = disk_tensor(100000, at::kFloat, folder_, 0, 100000);
    EXPECT_EQ(tensor.abs().sum().item<double>(), 0);
    tensor.fill_(2);
    EXPECT_EQ(tensor.sum().item<double>(), 200000);
    EXPECT_TRUE(fs::is_empty(folder_));
    EXPECT_EQ(blocks_of_mappings("reigen_offload"), 1);
  }
  EXPECT_EQ(blocks_of_mappings("reigen_offload"), 0);
  EXPECT_EQ(disk_tensor(0, at::kFloat, folder_, 0, 0).numel(), 0);
}

TEST_F(DiskTensors, OfAllRanksAreOneFile) {
  run_threads(3, [&](Communicator& world) {
    const at::Tensor tensor = common_disk_tensor(world, 3000, at::kDouble, folder_);
    tensor.narrow(0, 1000 * world.rank(), 1000).fill_(world.rank() + 1);
    world.barrier();
    EXPECT_EQ(tensor.sum().item<double>(), 6000);
  });
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(DiskTensors, ADirectoryThatIsNoneIsAnErrorOnAllRanks) {
  std::ofstream(folder_ / "file") << "x";
  for (const fs::path& place : {folder_ / "absent", folder_ / "file"}) {
    run_threads(2, [&](Communicator& world) {
      try {
        common_disk_tensor(world, 10, at::kFloat, place);
        ADD_FAILURE() << place;
      } catch (const IoError& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::kInputMissing);
        EXPECT_THAT(error.what(), ::testing::StartsWith("[offload] cannot make a file of 40 bytes in"));
      }
    });
  }
}

TEST_F(DiskTensors, ADiskThatIsTooSmallIsAnErrorAndNoSignal) {
  try {
    disk_tensor(std::int64_t{1} << 46, at::kFloat, folder_, 0, std::int64_t{1} << 46);
    ADD_FAILURE() << "256 TiB";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("fix: choose another directory"));
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace reigen::tensor
