// Signals to the launcher.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "child_program.h"

namespace reigen::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> test_rank(const std::string& ranks, const std::vector<std::string>& words,
                                   const std::vector<std::string>& options = {}) {
  std::vector<std::string> all = {"-n", ranks};
  all.insert(all.end(), options.begin(), options.end());
  all.push_back(TEST_RANK_PROGRAM);
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

// `timeout` signals its child, then the whole process group.
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
      {"sh", "-c", "trap '' HUP; exec " REIGEN_PROGRAM " run -n 1 sh -c 'echo ready; sleep 0.5; echo end'"});
  ASSERT_TRUE(job.wait_for_text("ready"));
  job.signal(SIGHUP);
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.out(), "ready\nend\n");
}

TEST(Signals, AnInheritedIgnoredInterruptDoesNotReachTheRanks) {
  // A shell starts background jobs with SIGINT ignored.
  ChildProgram job({"sh", "-c", "trap '' INT; exec " REIGEN_PROGRAM " run -n 1 sh -c 'echo ready; exec sleep 60'"});
  ASSERT_TRUE(job.wait_for_text("ready"));
  job.signal(SIGINT);
  EXPECT_EQ(job.wait(), 130);
}

}  // namespace
}  // namespace reigen::launch
