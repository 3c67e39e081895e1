// Signals to the launcher.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

#include "base/machine/process_state.h"
#include "child_program.h"
#include "harness/folders.h"

namespace reigen::launch::signals_e2e_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> test_rank(const std::string& ranks, const std::vector<std::string>& words,
                                   const std::vector<std::string>& options = {}) {
  std::vector<std::string> all = {"-n", ranks};
  all.insert(all.end(), options.begin(), options.end());
  all.push_back(built("tests/launch_test_rank"));
  all.insert(all.end(), words.begin(), words.end());
  return reigen_run(all);
}

TEST(Signals, TermIsForwardedAndRanksMayEndWell) {
  ChildProgram job(test_rank("2", {"catch-term", "0"}));
  ASSERT_TRUE(job.wait_for_text("ready", 2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.out(), AllOf(HasSubstr("[0] caught 15"), HasSubstr("[1] caught 15")));
  EXPECT_THAT(job.err(), AllOf(HasSubstr("SIGTERM passed on to 2 ranks"), Not(HasSubstr("failed"))));
}

TEST(Signals, StoppedResumableIsPassedOn) {
  ChildProgram job(test_rank("2", {"catch-int", "75"}));
  ASSERT_TRUE(job.wait_for_text("ready", 2));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 75);
  EXPECT_THAT(job.err(), Not(HasSubstr("failed")));
}

TEST(Signals, RanksThatDoNotCatchItDieOfIt) {
  for (const int signal : {SIGTERM, SIGINT}) {
    ChildProgram job(reigen_run({"-n", "2", "sh", "-c", "echo ready; exec sleep 60"}));
    ASSERT_TRUE(job.wait_for_text("ready", 2));
    job.signal(signal);
    EXPECT_EQ(job.wait(), 128 + signal);
  }
}

TEST(Signals, AFailureWhileStoppingIsReported) {
  ChildProgram job(test_rank("2", {"catch-term", "74"}));
  ASSERT_TRUE(job.wait_for_text("ready", 2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 74);
  EXPECT_THAT(job.err(), HasSubstr("exit code 74"));
}

TEST(Signals, UserSignalsAreForwardedAndEndNothing) {
  ChildProgram job(test_rank("2", {"catch-usr1", "0"}));
  ASSERT_TRUE(job.wait_for_text("ready", 2));
  job.signal(SIGUSR1);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.out(), AllOf(HasSubstr("[0] caught 10"), HasSubstr("[1] caught 10")));
}

TEST(Signals, RanksThatStopOnTheirOwnMayTakeTheirTime) {
  const Ran ran = run(reigen_run(
      {"-n", "2", "sh", "-c", "[ $RANK = 1 ] && { trap 'echo struck' TERM; sleep 0.6; echo saved; }; exit 75"}));
  EXPECT_EQ(ran.code, 75);
  EXPECT_EQ(ran.out, "[1] saved\n");
  EXPECT_EQ(ran.err, "");
}

TEST(Signals, GraceEndsInAKill) {
  ChildProgram job(test_rank("2", {"ignore"}, {"--grace", "0.3"}));
  ASSERT_TRUE(job.wait_for_text("ready", 2));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 143);
  for (const pid_t pid : pids_after("ready", job.out())) EXPECT_TRUE(disappears(pid));
}

TEST(Signals, TheSecondOneKillsAtOnce) {
  ChildProgram job(test_rank("2", {"ignore"}, {"--grace", "1000"}));
  ASSERT_TRUE(job.wait_for_text("ready", 2));
  job.signal(SIGINT);
  ASSERT_TRUE(job.wait_for_text("passed on"));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
  for (const pid_t pid : pids_after("ready", job.out())) EXPECT_TRUE(disappears(pid));
}

std::vector<std::string> shell_ranks(const std::string& script, const std::vector<std::string>& options = {}) {
  std::vector<std::string> all = {"-n", "2"};
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), {"sh", "-c", script + "; echo ready $$; while :; do sleep 0.02; done"});
  return reigen_run(all);
}

TEST(Signals, AHangUpAndASchedulersWarningMayEndInACheckpoint) {
  const std::vector<std::pair<int, std::string>> cases = {
      {SIGHUP, "HUP"}, {SIGUSR1, "USR1"}, {SIGUSR2, "USR2"}, {SIGXCPU, "XCPU"}};
  for (const auto& [signal, name] : cases) {
    SCOPED_TRACE(name);
    ChildProgram job(shell_ranks("trap 'echo saved; exit 75' " + name));
    ASSERT_TRUE(job.wait_for_text("ready", 2));
    job.signal(signal);
    EXPECT_EQ(job.wait(), 75);
    EXPECT_THAT(job.out(), AllOf(HasSubstr("[0] saved"), HasSubstr("[1] saved")));
    EXPECT_THAT(job.err(), AllOf(HasSubstr("SIG" + name + " passed on to 2 ranks"), Not(HasSubstr("failed"))));
  }
}

TEST(Signals, RanksThatDoNotKnowAWarningDieOfItAsWithoutALauncher) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2}) {
    ChildProgram job(shell_ranks("true"));
    ASSERT_TRUE(job.wait_for_text("ready", 2));
    job.signal(signal);
    EXPECT_EQ(job.wait(), 128 + signal);
    EXPECT_THAT(job.err(), Not(HasSubstr("failed")));
  }
}

// Slurm sends TERM twice, and systemd sends TERM and HUP. Both use SIGKILL to end a job at once.
TEST(Signals, TermMayComeAgain) {
  ChildProgram job(shell_ranks("trap 'sleep 1; exit 75' TERM; trap '' HUP"));
  ASSERT_TRUE(job.wait_for_text("ready", 2));
  job.signal(SIGTERM);
  ASSERT_TRUE(job.wait_for_text("Ctrl-C to kill"));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  job.signal(SIGTERM);
  job.signal(SIGHUP);
  EXPECT_EQ(job.wait(), 75);
}

TEST(Signals, CtrlCAfterTermKillsAtOnce) {
  ChildProgram job(test_rank("2", {"ignore"}, {"--grace", "1000"}));
  ASSERT_TRUE(job.wait_for_text("ready", 2));
  job.signal(SIGTERM);
  ASSERT_TRUE(job.wait_for_text("passed on"));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 143);
}

// The output of ranks that save is lost, but must not end them.
TEST(Signals, ATerminalThatHangsUpLeavesRanksTheTimeToSave) {
  int master = -1;
  const pid_t pid = ::forkpty(&master, nullptr, nullptr, nullptr);
  if (pid == 0) {
    reset_signals();
    std::vector<std::string> command =
        shell_ranks("trap 'for i in 1 2 3 4 5 6; do echo line; echo line >&2; sleep 0.1; done; exit 75' HUP");
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    ::execv(words[0], words.data());
    ::_exit(126);
  }
  std::string text;
  std::array<char, 4096> buffer;
  while (pids_after("ready", text).size() < 2) {
    const ssize_t got = ::read(master, buffer.data(), buffer.size());
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(master);  // the kernel sends SIGHUP to the session's leader, the launcher
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status)) << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 75) << text;
}

// The clock goes on while a job is suspended, but its ranks cannot save in this time.
TEST(Signals, TimeInWhichTheJobIsSuspendedIsNoGrace) {
  ChildProgram job(shell_ranks("trap 'sleep 0.5; exit 75' TERM", {"--grace", "2"}));
  ASSERT_TRUE(job.wait_for_text("ready", 2));
  const std::vector<pid_t> ranks = pids_after("ready", job.out());
  job.signal(SIGTERM);
  ASSERT_TRUE(job.wait_for_text("passed on"));
  for (const pid_t rank : ranks) ::kill(-rank, SIGSTOP);
  job.signal(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(5));
  job.signal(SIGCONT);  // the launcher continues its ranks
  EXPECT_EQ(job.wait(), 75);
}

TEST(Signals, CtrlZStopsTheRanksAndTheyGoOnWithTheLauncher) {
  ChildProgram job(test_rank("2", {"catch-term", "0"}));
  ASSERT_TRUE(job.wait_for_text("ready", 2));
  const std::vector<pid_t> ranks = pids_after("ready", job.out());
  const auto state_becomes = [](pid_t pid, bool stopped) {
    for (int i = 0; i < 2000; ++i) {
      if ((base::state_of(pid) == 'T') == stopped) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  };
  job.signal(SIGTSTP);
  for (const pid_t rank : ranks) EXPECT_TRUE(state_becomes(rank, true));
  EXPECT_TRUE(state_becomes(job.pid(), true));
  job.signal(SIGCONT);
  for (const pid_t rank : ranks) EXPECT_TRUE(state_becomes(rank, false));
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 0);
}

// `timeout` signals its child and then the whole process group, so the launcher gets two signals.
TEST(Signals, TwoOfOneMomentAreOneWish) {
  ChildProgram job(
      reigen_run({"-n", "2", "sh", "-c", "trap 'sleep 0.3; exit 75' TERM; echo ready; while :; do sleep 0.02; done"}));
  ASSERT_TRUE(job.wait_for_text("ready", 2));
  for (int i = 0; i < 20; ++i) {
    job.signal(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(job.wait(), 75);
}

TEST(Signals, StoppedRanksAreKilledToo) {
  ChildProgram job(test_rank("2", {"catch-term", "0"}, {"--grace", "0.3"}));
  ASSERT_TRUE(job.wait_for_text("ready", 2));
  const std::vector<pid_t> pids = pids_after("ready", job.out());
  ::kill(pids[0], SIGSTOP);
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait(), 143);
  for (const pid_t pid : pids) EXPECT_TRUE(disappears(pid));
}

TEST(Signals, NohupIsHonoured) {
  ChildProgram job(
      {"sh", "-c", "trap '' HUP; exec " + built("bin/reigen") + " run -n 1 sh -c 'echo ready; sleep 0.5; echo end'"});
  ASSERT_TRUE(job.wait_for_text("ready"));
  job.signal(SIGHUP);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "ready\nend\n");
}

TEST(Signals, AnInheritedIgnoredInterruptDoesNotReachTheRanks) {
  // A shell starts background jobs so that they ignore SIGINT.
  ChildProgram job(
      {"sh", "-c", "trap '' INT; exec " + built("bin/reigen") + " run -n 1 sh -c 'echo ready; exec sleep 60'"});
  ASSERT_TRUE(job.wait_for_text("ready"));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
}

}  // namespace
}  // namespace reigen::launch::signals_e2e_test
