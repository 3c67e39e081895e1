// How ranks share the processors of a machine, its quotas, and the processors that Slurm assigns.
#include "base/machine/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace reigen::base {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

CpuMask cpus(int first, int last, int of = 64) {
  CpuMask mask(static_cast<std::size_t>(of));
  for (int cpu = first; cpu <= last; ++cpu) mask[static_cast<std::size_t>(cpu)] = true;
  return mask;
}

CoreShare share_of(const CpuMask& own, const std::vector<CpuMask>& all) {
  return share_cores({.mask = own, .online = 64}, all, {}, 1);
}

// A root folder with its own /proc and /sys. None of Slurm's variables is set.
class Quota : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "reigen_cores_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    for (const char* variable : kSlurm) ::unsetenv(variable);
  }
  void TearDown() override {
    std::filesystem::remove_all(root_);
    for (const char* variable : kSlurm) ::unsetenv(variable);
  }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  // The processors found on a machine with 64.
  Cores found() const {
    Cores cores = find_cores(root_);
    cores.mask = cpus(0, 63);
    cores.online = 64;
    return cores;
  }
  static constexpr const char* kSlurm[] = {"SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK", "SLURM_PROCID", "SLURM_LOCALID",
                                           "SLURM_STEP_ID"};
  std::string root_;
};

TEST(CoreShare, RanksThatNobodyBoundShareAllProcessors) {
  const CpuMask all = cpus(0, 7);
  const CoreShare share = share_of(all, {all, all, all});
  EXPECT_EQ(share.threads, 2);
  EXPECT_NEAR(share.cores, 8.0 / 3, 1e-9);
  EXPECT_EQ(share.total, 8);
  EXPECT_TRUE(have_cores(share, 2));
  EXPECT_FALSE(have_cores(share, 3));
}

TEST(CoreShare, RanksThatWereBoundApartKeepWhatTheyHave) {
  const CoreShare share = share_of(cpus(0, 3), {cpus(0, 3), cpus(4, 7), cpus(8, 11)});
  EXPECT_EQ(share.threads, 4);
  EXPECT_EQ(share.total, 12);
  EXPECT_EQ(share_of(cpus(1, 1), {cpus(0, 0), cpus(1, 1)}).threads, 1);
}

TEST(CoreShare, RanksOfASocketShareIt) {
  const CpuMask one = cpus(0, 31);
  const CpuMask two = cpus(32, 63);
  EXPECT_EQ(share_of(one, {one, one, one, one, two, two}).threads, 8);
  EXPECT_EQ(share_of(two, {one, one, one, one, two, two}).threads, 16);
}

TEST(CoreShare, AWholeJobThatWasBoundToFewSharesTheseFew) {
  const CpuMask few = cpus(0, 1);
  const CoreShare share = share_of(few, {few, few, few, few});
  EXPECT_EQ(share.threads, 1);
  EXPECT_FALSE(have_cores(share, 1));
  EXPECT_EQ(describe_shortage(share, 1), "4 ranks x 1 thread share 2 processors: each gets a part of the speed");
  EXPECT_EQ(describe_shortage(share_of(few, {few, few}), 1), "");
}

TEST(CoreShare, ThirdsOfAProcessorAddUpToWholeOnes) {
  const CpuMask all = cpus(0, 8);
  EXPECT_EQ(share_of(all, {all, all, all}).threads, 3);
}

TEST_F(Quota, OfVersionTwoInTheOwnGroupAndAbove) {
  write("/proc/self/cgroup", "0::/job/step\n");
  write("/sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  EXPECT_TRUE(found().quotas.empty());
  write("/sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  const CoreShare share = share_cores(2, found());
  EXPECT_EQ(share.threads, 1);
  EXPECT_EQ(share.total, 2);  // rounded up
  EXPECT_FALSE(have_cores(share, 1));
  EXPECT_THAT(share.limit, AllOf(HasSubstr("a quota of 1.5 cores"), HasSubstr("/sys/fs/cgroup/job/cpu.max")));
  write("/sys/fs/cgroup/job/cpu.max", "800000 200000\n");
  EXPECT_EQ(share_cores(2, found()).threads, 2);
  EXPECT_TRUE(have_cores(share_cores(2, found()), 2));
}

TEST_F(Quota, OfLessThanOneCoreIsOneThread) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/cpu.max", "40000 100000\n");
  const CoreShare share = share_cores(1, found());
  EXPECT_EQ(share.threads, 1);
  EXPECT_EQ(share.total, 1);
  EXPECT_FALSE(have_cores(share, 1));
  EXPECT_EQ(describe_shortage(share, 1), "");
  EXPECT_THAT(describe_shortage(share, 2), HasSubstr("1 rank x 2 threads share a quota of 0.4 cores"));
  EXPECT_EQ(share_cores(2, found()).threads, 1);
}

TEST_F(Quota, OfVersionOne) {
  write("/proc/self/cgroup", "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n0::/\n");
  write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_TRUE(found().quotas.empty());
  write("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "250000\n");
  const CoreShare share = share_cores(1, found());
  EXPECT_EQ(share.threads, 3);
  EXPECT_NEAR(share.cores, 2.5, 1e-9);
}

// Docker with the host's control groups: the path is the host's, but the mount shows the container's own group at its
// top.
TEST_F(Quota, OfAContainerThatSeesItsOwnGroupAtTheTopOfTheMount) {
  write("/proc/self/cgroup", "3:cpu,cpuacct:/docker/abc/inner\n");
  write("/proc/self/mountinfo",
        "30 20 0:26 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:11 - cgroup cgroup rw,cpu,cpuacct\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(share_cores(1, found()).threads, 2);
  write("/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_quota_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/inner/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(share_cores(1, found()).threads, 1);
}

TEST_F(Quota, OfAHierarchyThatIsMountedElsewhere) {
  write("/proc/self/cgroup", "3:cpu:/\n0::/job\n");
  write("/proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  write("/sys/fs/cgroup/unified/job/cpu.max", "300000 100000\n");
  EXPECT_EQ(share_cores(1, found()).threads, 3);
}

TEST_F(Quota, OfAGroupThatHoldsThisRankAloneIsNotShared) {
  const std::string other = std::to_string(::getppid());
  write("/proc/self/cgroup", "0::/job/rank0\n");
  write("/proc/" + other + "/cgroup", "0::/job/rank1\n");
  write("/sys/fs/cgroup/job/rank0/cpu.max", "100000 100000\n");
  const CoreShare share = share_cores({::getpid(), ::getppid()}, 0, root_);
  EXPECT_TRUE(share.cores > 0.9 || ::sysconf(_SC_NPROCESSORS_ONLN) == 1) << share.cores;
  write("/proc/" + other + "/cgroup", "0::/job/rank0/below\n");
  EXPECT_NEAR(share_cores({::getpid(), ::getppid()}, 1, root_).cores, 0.5, 1e-9);
  EXPECT_FALSE(share_cores({::getpid(), ::getppid()}, 1, root_).is_first);
}

TEST_F(Quota, SlurmGivesTasksProcessorsAlsoWhereItBindsNobody) {
  ::setenv("SLURM_CPUS_ON_NODE", "8", 1);
  EXPECT_EQ(share_cores(2, found()).threads, 4);
  ::setenv("SLURM_CPUS_PER_TASK", "2", 1);
  EXPECT_EQ(share_cores(2, found()).threads, 4);  // the shell of an allocation is not a task
  ::setenv("SLURM_PROCID", "0", 1);               // batch scripts have it too
  ::setenv("SLURM_LOCALID", "0", 1);
  EXPECT_EQ(share_cores(2, found()).threads, 4);
  for (const char* reserved : {"4294967290", "4294967291", "nonsense"}) {
    ::setenv("SLURM_STEP_ID", reserved, 1);
    EXPECT_EQ(share_cores(2, found()).threads, 4) << reserved;
  }
  ::setenv("SLURM_PROCID", "1", 1);
  ::setenv("SLURM_LOCALID", "1", 1);
  ::setenv("SLURM_STEP_ID", "0", 1);
  const Cores task = found();
  const std::vector<CpuMask> masks(4, task.mask);
  EXPECT_EQ(share_cores(task, masks, {}, 1).threads, 2);
  EXPECT_EQ(share_cores(2, task).threads, 1);  // processes that this task starts share its processors
  ::setenv("SLURM_CPUS_PER_TASK", "nonsense", 1);
  EXPECT_EQ(share_cores(2, found()).threads, 4);
}

TEST_F(Quota, WhatALibraryTakesByItselfIsKnown) {
  for (int cpu = 0; cpu < 64; ++cpu) {  // each core has two processors
    write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
          std::to_string(cpu % 32) + "," + std::to_string(cpu % 32 + 32) + "\n");
  }
  Cores cores = found();
  cores.mask = cpus(4, 40);
  EXPECT_TRUE(is_default_count(cores, 37, root_));  // the process is bound to these
  EXPECT_TRUE(is_default_count(cores, 64, root_));
  EXPECT_TRUE(is_default_count(cores, 32, root_));  // 36 to 40 share the cores of 4 to 8
  EXPECT_FALSE(is_default_count(cores, 36, root_));
  EXPECT_FALSE(is_default_count(cores, 1, root_));
}

TEST(ThreadsByEnvironment, OmpsWinsOverMkls) {
  ::unsetenv("OMP_NUM_THREADS");
  ::unsetenv("MKL_NUM_THREADS");
  EXPECT_EQ(threads_by_environment(), 0);
  ::setenv("MKL_NUM_THREADS", "3", 1);
  EXPECT_EQ(threads_by_environment(), 3);
  ::setenv("OMP_NUM_THREADS", "4,2", 1);
  EXPECT_EQ(threads_by_environment(), 4);
  ::unsetenv("OMP_NUM_THREADS");
  ::unsetenv("MKL_NUM_THREADS");
}

TEST(CoreShare, TheBindingOfAnotherProcessIsSeen) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "one processor";
  cpu_set_t first;
  cpu_set_t others = before;
  CPU_ZERO(&first);
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&first) == 0; ++cpu) {
    if (!CPU_ISSET(cpu, &before)) continue;
    CPU_SET(cpu, &first);
    CPU_CLR(cpu, &others);
  }
  pid_t child = 0;
  std::string program = "sleep";
  std::string time = "60";
  char* arguments[] = {program.data(), time.data(), nullptr};
  ASSERT_EQ(::posix_spawnp(&child, "sleep", nullptr, nullptr, arguments, environ), 0);
  const auto shared = share_cores({::getpid(), child}, 0);
  ASSERT_EQ(::sched_setaffinity(child, sizeof(others), &others), 0);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(first), &first), 0);
  const CoreShare apart = share_cores({::getpid(), child}, 0);
  ASSERT_EQ(::sched_setaffinity(child, sizeof(first), &first), 0);
  const CoreShare together = share_cores({::getpid(), child}, 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_EQ(::sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_LE(shared.cores, CPU_COUNT(&before) / 2.0 + 1e-9);
  if (find_cores().quotas.empty()) {
    EXPECT_NEAR(apart.cores, 1, 1e-9);
  }
  EXPECT_LE(together.cores, 0.5 + 1e-9);
  EXPECT_EQ(together.total, 1);
}

}  // namespace
}  // namespace reigen::base
