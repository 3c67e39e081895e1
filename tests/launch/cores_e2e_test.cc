// Jobs in a control group with a quota of processor time, like those of docker --cpus and Kubernetes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "launch/child_program.h"

namespace reigen::launch::cores_e2e_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A control group with a quota of `cores` in each 100 ms. It does not exist if this user may not make one.
class QuotaGroup {
 public:
  explicit QuotaGroup(double cores) {
    const bool first_version = fs::exists("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    folder_ = fs::path(first_version ? "/sys/fs/cgroup/cpu" : "/sys/fs/cgroup") /
              ("reigen-cores-test-" + std::to_string(::getpid()));
    std::error_code error;
    if (!fs::create_directory(folder_, error)) return;
    const std::string quota = std::to_string(static_cast<int>(cores * 100000));
    std::ofstream file(folder_ / (first_version ? "cpu.cfs_quota_us" : "cpu.max"));
    exists_ = static_cast<bool>(file << (first_version ? quota : quota + " 100000") << std::flush);
  }
  ~QuotaGroup() {
    std::error_code ignored;
    for (int attempt = 0; attempt < 100; ++attempt) {  // processes of the group may still be ending
      if (::rmdir(folder_.c_str()) == 0 || !fs::exists(folder_, ignored)) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  QuotaGroup(const QuotaGroup&) = delete;  // it owns one folder of the kernel
  QuotaGroup& operator=(const QuotaGroup&) = delete;

  bool exists() const { return exists_; }
  Ran run_inside(const std::vector<std::string>& command) const {
    std::vector<std::string> words = {"sh", "-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"", folder_.string()};
    words.insert(words.end(), command.begin(), command.end());
    return run(words, {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK",
                       "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_ID"});
  }

 private:
  fs::path folder_;
  bool exists_ = false;
};

TEST(CoresOfAJob, AQuotaIsSharedAsProcessorsAre) {
  const QuotaGroup group(0.4);
  if (!group.exists()) GTEST_SKIP() << "no control group of the controller cpu can be made here";
  const Ran one = group.run_inside(reigen_run({"-n", "1", "sh", "-c", "echo $OMP_NUM_THREADS"}));
  EXPECT_EQ(one.out, "1\n") << one.err;
  EXPECT_EQ(one.err, "");
  const Ran two = group.run_inside(reigen_run({"-n", "2", "--prefix", "none", "sh", "-c", "echo $OMP_NUM_THREADS"}));
  EXPECT_EQ(two.out, "1\n1\n") << two.err;
  EXPECT_THAT(two.err, AllOf(HasSubstr("2 ranks x 1 thread share a quota of 0.4 cores"), HasSubstr("/sys/fs/cgroup")));
  const Ran ranks = group.run_inside(reigen_run({"-n", "cpu", "sh", "-c", "echo $WORLD_SIZE"}));
  EXPECT_EQ(ranks.out, "1\n") << ranks.err;
}

TEST(CoresOfAJob, MoreThreadsThanProcessorsAreToldOnce) {
  const std::string many = "4096";
  const Ran ran = run(reigen_run({"-n", "2", "--threads", many, "true"}));
  EXPECT_EQ(ran.code, 0);
  const std::string warning = "2 ranks x 4096 threads share ";
  EXPECT_THAT(ran.err, HasSubstr(warning));
  EXPECT_EQ(ran.err.find(warning), ran.err.rfind(warning));
}

}  // namespace
}  // namespace reigen::launch::cores_e2e_test
