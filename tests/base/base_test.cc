#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/environment.h"
#include "base/machine/available_memory.h"
#include "base/machine/cache_size.h"
#include "base/machine/cores.h"
#include "base/variables.h"
#include "reigen/base/bytes.h"
#include "reigen/base/deadline.h"
#include "reigen/base/error.h"
#include "reigen/base/unique_fd.h"

namespace reigen::base {
namespace {

using ::testing::HasSubstr;

TEST(Bytes, FormatsInWords) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(64 * kMiB), "64 MiB");
  EXPECT_EQ(format_bytes(512 * kGiB), "512 GiB");
}

TEST(Bytes, ParsesSizesAndRefusesTheRest) {
  EXPECT_EQ(parse_bytes("4"), 4u);
  EXPECT_EQ(parse_bytes("2k"), 2 * kKiB);
  EXPECT_EQ(parse_bytes("64M"), 64 * kMiB);
  EXPECT_EQ(parse_bytes("1GiB"), kGiB);
  for (const char* bad : {"", "x", "-1", "1.5M", "4T4", "99999999999999999999", "99999999999G"})
    EXPECT_THROW(parse_bytes(bad), InvalidArgument) << bad;
}

TEST(Report, LeavesOutWhatIsEmpty) {
  EXPECT_EQ(to_string(Report{.what = "what"}), "what");
  EXPECT_EQ(to_string(Report{.what = "what", .got = "1", .expected = "2", .fix = "do"}),
            "what\n  got: 1   expected: 2\n  fix: do");
  EXPECT_EQ(to_string(Report{.what = "what", .expected = "2"}), "what\n  expected: 2");
}

TEST(Check, PrintsItsValues) {
  try {
    REIGEN_CHECK(1 > 2, "{} is not more than {}", 1, 2);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(), "1 is not more than 2");
    EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
  }
  EXPECT_THROW(REIGEN_ASSERT(false, "never"), InternalError);
}

TEST(Check, SystemCallsNameCallAndErrno) {
  try {
    REIGEN_SYSCALL(::open("/nowhere/at/all", O_RDONLY));
    FAIL();
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("open"));
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
    EXPECT_EQ(error.exit_code(), ExitCode::kInputMissing);
  }
}

TEST(Deadline, CutsWhatItHandsToTheKernel) {
  using std::chrono::seconds;
  EXPECT_FALSE(Deadline::never().expired());
  EXPECT_EQ(Deadline::never().remaining(seconds(1)), seconds(1));
  EXPECT_TRUE(Deadline::after(seconds(-1)).expired());
  EXPECT_EQ(Deadline::after(seconds(-1)).remaining(seconds(1)).count(), 0);
  EXPECT_TRUE(Deadline::after(std::chrono::nanoseconds::max()).is_never());
  EXPECT_LE(Deadline::after(seconds(5)).remaining(seconds(60)), seconds(5));
}

TEST(UniqueFd, ClosesOnce) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  {
    UniqueFd a(fds[0]);
    UniqueFd b(std::move(a));
    EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move): moved from means empty
    EXPECT_TRUE(b);
  }
  EXPECT_EQ(::fcntl(fds[0], F_GETFD), -1);
  ::close(fds[1]);
}

TEST(CacheSize, TheHighestLevelCounts) {
  const auto root = std::filesystem::temp_directory_path() / ("reigen_cache_" + std::to_string(::getpid()));
  EXPECT_EQ(last_level_cache_bytes(root.string()), 32 * kMiB);  // the system reports no cache
  const auto cache = [&](const char* name, const char* level, const char* size, const char* cpu = "cpu0") {
    const auto folder = root / "sys/devices/system/cpu" / cpu / "cache" / name;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "level") << level;
    std::ofstream(folder / "size") << size;
  };
  cache("index0", "1\n", "48K\n");
  cache("index1", "2\n", "1M\n");
  EXPECT_EQ(last_level_cache_bytes(root.string()), kMiB);
  cache("index2", "3\n", "nonsense\n");
  EXPECT_EQ(last_level_cache_bytes(root.string()), kMiB);
  cache("index2", "3\n", "16384K\n");
  EXPECT_EQ(last_level_cache_bytes(root.string()), 16 * kMiB);
  // Two processors share a cache, and one has a cache of its own.
  const auto shared = [&](const char* cpu, const char* processors) {
    cache("index2", "3\n", "16384K\n", cpu);
    std::ofstream(root / "sys/devices/system/cpu" / cpu / "cache/index2/shared_cpu_list") << processors;
  };
  shared("cpu0", "0-1\n");
  shared("cpu1", "0-1\n");
  EXPECT_EQ(last_level_cache_bytes(root.string()), 16 * kMiB);
  shared("cpu2", "2\n");
  EXPECT_EQ(last_level_cache_bytes(root.string()), 32 * kMiB);
  std::filesystem::remove_all(root);
}

TEST(AvailableMemory, TheSmallestLimitCounts) {
  const auto root = std::filesystem::temp_directory_path() / ("reigen_memory_" + std::to_string(::getpid()));
  std::filesystem::create_directories(root / "proc/self");
  std::filesystem::create_directories(root / "sys/fs/cgroup/job");
  const auto write = [&](const char* path, const char* text) { std::ofstream(root / path) << text; };
  write("proc/meminfo", "MemTotal: 100 kB\nMemAvailable:     4096 kB\n");
  EXPECT_EQ(available_memory(root.string()).bytes, 4 * kMiB);
  write("proc/self/cgroup", "0::/job\n");
  write("sys/fs/cgroup/job/memory.max", "2097152\n");
  write("sys/fs/cgroup/job/memory.current", "1048576\n");
  write("sys/fs/cgroup/job/memory.stat", "inactive_file 524288\n");
  EXPECT_EQ(available_memory(root.string()).bytes, kMiB + kMiB / 2);
  EXPECT_THAT(available_memory(root.string()).source, HasSubstr("memory.max"));
  std::filesystem::remove_all(root);
}

TEST(Environment, EveryVariableIsInTheTable) {
  for (const auto& variable : environment::table()) {
    EXPECT_THAT(variable.name, HasSubstr("REIGEN_"));
    EXPECT_GT(std::string(variable.meaning).size(), 10u);
  }
  ::setenv("REIGEN_LOG", "", 1);
  EXPECT_FALSE(environment::log().has_value());
  ::setenv("REIGEN_LOG", "info", 1);
  EXPECT_EQ(environment::log(), "info");
  ::unsetenv("REIGEN_LOG");
}

TEST(Variables, OfKubernetesServicesAreKnownByTheirForm) {
  EXPECT_TRUE(is_kubernetes_service("REIGEN_RUN_SERVICE_HOST", "10.0.0.1"));
  EXPECT_TRUE(is_kubernetes_service("REIGEN_RUN_SERVICE_PORT", "80"));
  EXPECT_TRUE(is_kubernetes_service("REIGEN_RUN_SERVICE_PORT_METRICS", "80"));
  EXPECT_TRUE(is_kubernetes_service("REIGEN_RUN_PORT", "udp://10.0.0.1:80"));
  EXPECT_TRUE(is_kubernetes_service("MASTER_PORT", "tcp://10.0.0.1:80"));
  for (const char* tail : {"", "_PROTO", "_PORT", "_ADDR"}) {
    EXPECT_TRUE(is_kubernetes_service(std::string("REIGEN_RUN_PORT_8080_SCTP") + tail, "x"));
  }
  EXPECT_TRUE(is_kubernetes_service("REIGEN_PORT_FORWARD_PORT_80_TCP_ADDR", "10.0.0.1"));
  EXPECT_FALSE(is_kubernetes_service("MASTER_PORT", "29500"));
  EXPECT_FALSE(is_kubernetes_service("REIGEN_RUN_PORT_80", "x"));
  EXPECT_FALSE(is_kubernetes_service("REIGEN_RUN_PORT_TCP", "x"));
  EXPECT_FALSE(is_kubernetes_service("REIGEN_RUN_PORT_80_TCP_EPOCHS", "3"));
  EXPECT_FALSE(is_kubernetes_service("REIGEN_TRAIN_EPOCH", "3"));
}

TEST(Variables, UnknownOnesAreFoundWithWhatWasMeant) {
  const std::vector<std::pair<const char*, const char*>> set = {
      {"REIGEN_COMM_BACKNED", "tcp"},     {"REIGEN_NONSENSE_OF_MINE", "1"}, {"REIGEN_TRAIN_EPOCHS", "3"},
      {"REIGEN_COMM_SERVICE_PORT", "80"}, {"REIGEN_COMM_BACKEND", "tcp"},   {"REIGEN_TIMOUT", ""}};
  for (const auto& [name, value] : set) ::setenv(name, value, 1);
  std::string found;
  for (const UnknownVariable& variable : unknown_variables()) {
    const bool ours = std::any_of(set.begin(), set.end(), [&](const auto& s) { return variable.name == s.first; });
    if (ours) found += variable.name + "->" + variable.meant + " ";
  }
  for (const auto& [name, value] : set) ::unsetenv(name);
  EXPECT_THAT(found, HasSubstr("REIGEN_COMM_BACKNED->REIGEN_COMM_BACKEND "));
  EXPECT_THAT(found, HasSubstr("REIGEN_NONSENSE_OF_MINE-> "));
  EXPECT_EQ(std::count(found.begin(), found.end(), '>'), 2) << found;
}

TEST(Cores, AreThoseOfTheMachineAndThoseThatThisProcessMayUse) {
  EXPECT_TRUE(have_cores(1));
  EXPECT_FALSE(have_cores(1 << 20));
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (std::size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_TRUE(have_cores(1));
  EXPECT_FALSE(have_cores(1, 2));
  ASSERT_EQ(::sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace reigen::base
