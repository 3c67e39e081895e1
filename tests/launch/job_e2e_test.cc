// How a job ends: exit codes, which rank is blamed, and that nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "child_program.h"
#include "harness/folders.h"
#include "reigen/base/error.h"
#include "reigen/launch/job.h"

namespace reigen::launch::job_e2e_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> shell(const std::string& ranks, const std::string& script) {
  return reigen_run({"-n", ranks, "sh", "-c", script});
}

TEST(Job, EndsWellWhenAllRanksDo) {
  const Ran ran = run(shell("2", "exit 0"));
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "");
}

TEST(Job, GivesEveryRankTorchrunsVariables) {
  const Ran ran =
      run(shell("2",
                "[ $RANK = 0 ] || sleep 0.3; echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK "
                "$GROUP_WORLD_SIZE $ROLE_RANK $ROLE_WORLD_SIZE $ROLE_NAME $MASTER_ADDR "
                "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS ${REIGEN_CONSOLE-none} $PYTHONUNBUFFERED; "
                "[ $MASTER_PORT -gt 0 ] && [ $REIGEN_STORE != tcp://$MASTER_ADDR:$MASTER_PORT ] && "
                "[ ${#REIGEN_JOB} = 32 ] && [ $OMP_NUM_THREADS -ge 1 ] || echo bad"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "[0] 0 0 2 2 0 1 0 2 default 127.0.0.1 0 0 none 1\n[1] 1 1 2 2 0 1 1 2 default 127.0.0.1 0 0 none 1\n");
}

TEST(Job, ThreadsPerRank) {
  EXPECT_EQ(run(reigen_run({"-n", "1", "--threads", "3", "sh", "-c", "echo $OMP_NUM_THREADS"})).out, "3\n");
  EXPECT_EQ(run(shell("1", "echo $OMP_NUM_THREADS"), {"OMP_NUM_THREADS=7"}).out, "7\n");
  EXPECT_EQ(
      run(reigen_run({"-n", "1", "--threads", "3", "sh", "-c", "echo $OMP_NUM_THREADS"}), {"OMP_NUM_THREADS=7"}).out,
      "3\n");
}

TEST(Job, StandardInputIsEmpty) { EXPECT_EQ(run(shell("1", "cat; echo end")).out, "end\n"); }

TEST(Job, PassesTheExitCodeOnAndSaysWho) {
  const Ran ran = run(shell("3", "[ $RANK = 1 ] && { echo last words; echo oh no >&2; exit 3; }; sleep 60"));
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("rank 1 of 3 failed: exit code 3"), HasSubstr("host "), HasSubstr("pid "),
                             HasSubstr("    last words\n"), HasSubstr("    oh no\n")));
}

TEST(Job, ARankMayEndEarly) {
  const Ran ran = run(shell("2", "[ $RANK = 0 ] && exit 0; sleep 0.5; echo late"));
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.out, "[1] late\n");
}

TEST(Job, AKilledRankEndsTheOthers) {
  ChildProgram job(shell("4", "echo ready $$; while :; do sleep 0.1; done"));
  ASSERT_TRUE(job.wait_for_text("ready", 4));
  const std::vector<pid_t> pids = pids_after("ready", job.out());
  ::kill(pids[2], SIGKILL);
  EXPECT_EQ(job.wait(), 137);
  EXPECT_THAT(job.err(), AllOf(HasSubstr("killed by SIGKILL (9)"), HasSubstr("pid " + std::to_string(pids[2])),
                               HasSubstr("dmesg")));
  for (const pid_t pid : pids) EXPECT_TRUE(disappears(pid));
}

TEST(Job, RanksThatIgnoreTermAreKilled) {
  const Ran ran =
      run(reigen_run({"-n", "3", "sh", "-c",
                      "[ $RANK = 2 ] && { sleep 0.3; exit 9; }; exec " + built("tests/launch_test_rank") + " ignore"}));
  EXPECT_EQ(ran.code, 9);
  for (const pid_t pid : pids_after("ready", ran.out)) EXPECT_TRUE(disappears(pid));
}

TEST(Job, AStoppedRankIsTheCulprit) {
  const Ran ran = run(shell("3", "[ $RANK = 1 ] && kill -STOP $$; sleep 0.5; [ $RANK = 0 ] && exit 79; sleep 60"));
  EXPECT_EQ(ran.code, 79);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("rank 1 (pid "), HasSubstr("was stopped"),
                             HasSubstr("rank 0 of 3 failed: exit code 79")));
}

TEST(Job, ALostPeerIsNotTheCause) {
  const Ran ran = run(shell("3", "[ $RANK = 1 ] && { sleep 0.05; exit 4; }; [ $RANK = 0 ] && exit 79; sleep 60"));
  EXPECT_EQ(ran.code, 4);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("rank 1 of 3 failed"), Not(HasSubstr("rank 0 of 3 failed"))));
}

TEST(Job, EndsWhatItsRanksLeftBehind) {
  const Ran ran = run(reigen_run({"-n", "2", built("tests/launch_test_rank"), "grow-and-exit", "0"}));
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::vector<pid_t> pids = pids_after("pid", ran.out);
  EXPECT_EQ(pids.size(), 6U);
  for (const pid_t pid : pids) EXPECT_TRUE(disappears(pid)) << pid;
}

TEST(Job, NobodyOutlivesAKilledLauncher) {
  ChildProgram job(reigen_run({"-n", "2", built("tests/launch_test_rank"), "grow-and-stay"}));
  ASSERT_TRUE(job.wait_for_text("pid ", 6));
  const std::vector<pid_t> pids = pids_after("pid", job.out());
  std::ifstream children("/proc/" + std::to_string(job.pid()) + "/task/" + std::to_string(job.pid()) + "/children");
  std::vector<pid_t> direct((std::istream_iterator<pid_t>(children)), std::istream_iterator<pid_t>());
  EXPECT_EQ(direct.size(), 3U);  // two ranks and the guardian
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait(), 137);
  for (const pid_t pid : pids) EXPECT_TRUE(disappears(pid)) << pid;
  for (const pid_t pid : direct) EXPECT_TRUE(disappears(pid)) << pid;
}

TEST(Job, NobodyOutlivesAKilledOuterLauncher) {
  ChildProgram job(
      reigen_run({"-n", "1", built("bin/reigen"), "run", "-n", "2", built("tests/launch_test_rank"), "grow-and-stay"}));
  ASSERT_TRUE(job.wait_for_text("pid ", 6));
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait(), 137);
  for (const pid_t pid : pids_after("pid", job.out())) EXPECT_TRUE(disappears(pid)) << pid;
}

TEST(Job, ManyRanks) {
  const Ran ran = run(shell("24", "echo rank"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 24);
}

TEST(Job, TooManyRanksForTheMemory) {
  const Ran ran = run(reigen_run({"-n", "100", "--memory-per-rank", "100G", "true"}));
  EXPECT_EQ(ran.code, 71);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("100 x 100 GiB"), HasSubstr("at most"), HasSubstr("fix:")));
}

TEST(Job, TooManyRanksForTheDescriptors) {
  const Ran ran =
      run({"sh", "-c",
           "ulimit -Sn 60; ulimit -Hn 60; exec " + built("bin/reigen") + " run -n 10 --memory-per-rank 1M true"});
  EXPECT_EQ(ran.code, 71);
  EXPECT_THAT(ran.err, HasSubstr("10 x 6 + 40 = 100"));
}

TEST(Job, ARaisedLimitOfDescriptorsIsNotTheRanks) {
  const Ran ran =
      run({"sh", "-c", "ulimit -Sn 45; exec " + built("bin/reigen") + " run -n 3 --prefix none sh -c 'ulimit -Sn'"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "45\n45\n45\n");
}

TEST(Job, ProgramsThatCannotRun) {
  std::string folder = ::testing::TempDir() + "reigen_job_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/script") << "#!/no/such/interpreter\n";
  std::ofstream(folder + "/noise") << "\x01\x02\x03";
  std::ofstream(folder + "/data") << "x";
  ::chmod((folder + "/script").c_str(), 0755);
  ::chmod((folder + "/noise").c_str(), 0755);
  const std::vector<std::pair<std::string, int>> cases = {
      {"no-such-program", 66}, {"./no-such-program", 66}, {folder, 77},
      {folder + "/data", 77},  {folder + "/script", 66},  {folder + "/noise", 65}};
  for (const auto& [program, code] : cases) {
    const Ran ran = run(reigen_run({"-n", "2", program}));
    EXPECT_EQ(ran.code, code) << program;
    EXPECT_THAT(ran.err, AllOf(HasSubstr("reigen: "), HasSubstr(program), HasSubstr("fix:")));
    EXPECT_EQ(ran.out, "");
  }
  std::filesystem::remove_all(folder);
}

TEST(RunJob, GivesWhoFailedAndItsLastLines) {
  const JobResult result =
      run_job({.command = {"sh", "-c", "[ $RANK = 1 ] || sleep 60; for i in $(seq 50); do echo line $i; done; exit 5"},
               .ranks = 2});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(result.failed_rank, 1);
  EXPECT_EQ(result.stopped_rank, -1);
  EXPECT_THAT(result.last_lines, AllOf(::testing::StartsWith("line 21\n"), ::testing::EndsWith("line 50\n")));
}

TEST(RunJob, LeavesTheCallerAsItWas) {
  sigset_t before;
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  for (int i = 0; i < 3; ++i) {
    const JobResult result =
        run_job({.command = {"sh", "-c", "echo $EXTRA; (sleep 60 &) "}, .ranks = 2, .environment = {{"EXTRA", "yes"}}});
    EXPECT_EQ(result.exit_code, 0);
  }
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // no child is left, not even a zombie
  EXPECT_EQ(errno, ECHILD);
}

TEST(RunJob, RefusesOptionsOutOfRange) {
  EXPECT_THROW(run_job({.command = {"true"}, .ranks = 0}), InvalidArgument);
  EXPECT_THROW(run_job({.command = {"true"}, .ranks = -3}), InvalidArgument);
  EXPECT_THROW(run_job({}), InvalidArgument);
  EXPECT_THROW(run_job({.command = {"true"}, .prefix = "sometimes"}), InvalidArgument);
  EXPECT_THROW(run_job({.command = {"true"}, .threads_per_rank = -1}), InvalidArgument);
  EXPECT_THROW(run_job({.command = {"true"}, .grace = std::chrono::milliseconds(-1)}), InvalidArgument);
}

}  // namespace
}  // namespace reigen::launch::job_e2e_test
