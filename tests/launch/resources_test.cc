#include "launch/ranks/resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "reigen/base/bytes.h"
#include "reigen/base/error.h"

namespace reigen::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A root folder with its own /proc and /sys.
class Memory : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "reigen_memory_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(Memory, WhatTheKernelCallsAvailable) {
  write("/proc/meminfo", "MemTotal:  100 kB\nMemFree: 10 kB\nMemAvailable:   40 kB\n");
  EXPECT_EQ(available_memory(root_).bytes, 40 * kKiB);
  EXPECT_THAT(available_memory(root_).source, HasSubstr("MemAvailable"));
}

TEST_F(Memory, AControlGroupAboveOursLimitsToo) {
  write("/proc/meminfo", "MemAvailable: 4000 kB\n");
  write("/proc/self/cgroup", "0::/job/step\n");
  write("/sys/fs/cgroup/job/step/memory.max", "max\n");
  write("/sys/fs/cgroup/job/step/memory.current", "1024\n");
  write("/sys/fs/cgroup/job/memory.max", "1048576\n");
  write("/sys/fs/cgroup/job/memory.current", "524288\n");
  write("/sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 262144\n");
  EXPECT_EQ(available_memory(root_).bytes, 786432U);  // 1048576 - (524288 - 262144)
  EXPECT_THAT(available_memory(root_).source, HasSubstr("/sys/fs/cgroup/job/memory.max"));
}

TEST_F(Memory, ControlGroupsOfTheFirstVersion) {
  write("/proc/meminfo", "MemAvailable: 4000 kB\n");
  write("/proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/docker/x\n");
  write("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "65536\n");
  write("/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "70000\n");
  EXPECT_EQ(available_memory(root_).bytes, 0U);
  EXPECT_THAT(available_memory(root_).source, HasSubstr("limit_in_bytes"));
}

TEST_F(Memory, NothingKnownRefusesNothing) {
  EXPECT_TRUE(available_memory(root_).source.empty());
  EXPECT_NO_THROW(check_memory(1000, kGiB, available_memory(root_)));
}

TEST(CheckMemory, RefusesWithTheArithmetic) {
  const AvailableMemory available{10 * kGiB, "MemAvailable in /proc/meminfo"};
  EXPECT_NO_THROW(check_memory(10, kGiB, available));
  try {
    check_memory(64, kGiB, available);
    FAIL() << "64 GiB fit into 10";
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOsResource);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("64 x 1 GiB = 64 GiB"), HasSubstr("10 GiB (MemAvailable"), HasSubstr("-n 10")));
  }
}

TEST(CheckLimits, RefusesMoreDescriptorsThanTheHardLimit) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit small{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
  EXPECT_EQ(check_limits(10).rlim_cur, 64U);  // the limit is raised; the result is the old limit
  rlimit now{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &now), 0);
  EXPECT_EQ(now.rlim_cur, 100U);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max == RLIM_INFINITY || before.rlim_max > 5'000'000'000) GTEST_SKIP() << "no hard limit here";
  const int many = static_cast<int>(before.rlim_max / 5) + 1;
  try {
    check_limits(many);
    FAIL() << many << " ranks fit into " << before.rlim_max << " descriptors";
  } catch (const IoError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kOsResource);
    EXPECT_THAT(error.what(), HasSubstr("ulimit"));
  }
}

}  // namespace
}  // namespace reigen::launch
