#include "launch/ranks/ending.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launch/ranks/signals.h"

namespace reigen::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Ending exited(int rank, int code, int round) {
  return {.rank = rank, .pid = 100 + rank, .exit_code = code, .round = round};
}
Ending killed(int rank, int signal, int round) {
  return {.rank = rank, .pid = 100 + rank, .signal = signal, .round = round};
}
Ending after(Ending ending) {
  ending.consequence = true;
  return ending;
}

int blamed(const std::vector<Ending>& endings) {
  const Ending* cause = root_cause(endings);
  return cause == nullptr ? -1 : cause->rank;
}

TEST(RootCause, NobodyWhenAllEndedWell) {
  EXPECT_EQ(blamed({}), -1);
  EXPECT_EQ(blamed({exited(0, 0, 1), exited(1, 0, 2)}), -1);
}

TEST(RootCause, TheFirstFailure) { EXPECT_EQ(blamed({exited(2, 3, 5), exited(0, 1, 4), exited(1, 0, 1)}), 0); }

TEST(RootCause, ALostPeerIsAConsequence) {
  EXPECT_EQ(blamed({exited(0, 79, 1), exited(1, 79, 1), killed(2, SIGKILL, 2)}), 2);
  EXPECT_EQ(blamed({exited(0, 79, 1), exited(1, 3, 2)}), 1);
  EXPECT_EQ(blamed({exited(1, 79, 2), exited(0, 79, 3)}), 1);
}

TEST(RootCause, WhatTheLauncherEndedIsNotToBlame) {
  EXPECT_EQ(blamed({exited(3, 79, 1), after(killed(0, SIGTERM, 2)), after(exited(1, 1, 2))}), 3);
}

TEST(RootCause, OfOneRoundASignalComesFirst) { EXPECT_EQ(blamed({exited(0, 1, 1), killed(1, SIGSEGV, 1)}), 1); }

TEST(CodeAfterStop, AgreesWithTheRanks) {
  EXPECT_EQ(code_after_stop({exited(0, 0, 1), exited(1, 0, 1)}, SIGTERM, false), 0);
  EXPECT_EQ(code_after_stop({exited(0, 75, 1), exited(1, 75, 1)}, SIGTERM, false), 75);
  EXPECT_EQ(code_after_stop({exited(0, 0, 1), exited(1, 75, 1)}, SIGTERM, false), 75);
  EXPECT_EQ(code_after_stop({killed(0, SIGTERM, 1), killed(1, SIGTERM, 1)}, SIGTERM, false), 143);
  EXPECT_EQ(code_after_stop({exited(0, 75, 1), killed(1, SIGINT, 1)}, SIGINT, false), 130);
}

TEST(CodeAfterStop, AFailureWhileStoppingIsAFailure) {
  EXPECT_EQ(code_after_stop({exited(0, 75, 2), exited(1, 74, 1)}, SIGTERM, false), 74);
  EXPECT_EQ(code_after_stop({killed(0, SIGSEGV, 2), killed(1, SIGTERM, 1)}, SIGTERM, false), 139);
  EXPECT_EQ(code_after_stop({killed(0, SIGKILL, 1), killed(1, SIGTERM, 1)}, SIGTERM, false), 137);
}

TEST(CodeAfterStop, WhoLostTheOthersHasNotFailed) {
  const std::vector<Ending> endings = {killed(0, SIGINT, 1), exited(1, 79, 2)};
  EXPECT_EQ(code_after_stop(endings, SIGINT, false), 130);
  EXPECT_FALSE(cause_after_stop(endings, SIGINT, false));
  EXPECT_EQ(code_after_stop({exited(0, 79, 1), exited(1, 79, 1)}, SIGINT, false), 79);
}

TEST(CodeAfterStop, BlamesTheRankWhoseCodeItIs) {
  const auto cause = cause_after_stop({killed(0, SIGINT, 1), exited(1, 3, 2)}, SIGINT, false);
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->rank, 1);
}

TEST(CodeAfterStop, WhoHadToBeKilledCountsAsEndedByTheSignal) {
  EXPECT_EQ(code_after_stop({after(killed(0, SIGKILL, 1)), killed(1, SIGINT, 1)}, SIGINT, true), 130);
}

TEST(FailureReport, NamesRankHostPidAndWhy) {
  Ending cause = killed(2, SIGKILL, 1);
  cause.run_time = std::chrono::milliseconds(3210);
  EXPECT_THAT(failure_report(cause, 4, {}, "a\nb\n"),
              AllOf(HasSubstr("rank 2 of 4 failed: killed by SIGKILL (9)"), HasSubstr("pid 102"), HasSubstr("host "),
                    HasSubstr("after 3.2 s"), HasSubstr("dmesg"), HasSubstr("last lines:\n    a\n    b\n"),
                    Not(HasSubstr("stopped"))));
  EXPECT_THAT(failure_report(exited(0, 3, 1), 1, {}, ""),
              AllOf(HasSubstr("exit code 3"), Not(HasSubstr("last lines"))));
}

TEST(FailureReport, NamesTheStoppedRankFirst) {
  EXPECT_THAT(failure_report(exited(0, 79, 1), 4, {.rank = 2, .pid = 77}, ""),
              testing::StartsWith("reigen: rank 2 (pid 77) was stopped"));
}

TEST(SignalName, WordsAndNumbers) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(SIGRTMIN + 2), "signal " + std::to_string(SIGRTMIN + 2));
}

}  // namespace
}  // namespace reigen::launch
