// The output on the console and in the log files.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "child_program.h"
#include "harness/folders.h"
#include "reigen/base/unique_fd.h"

namespace reigen::launch::output_e2e_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// If output cannot be written, the ranks go on: a full disk for a log is no reason to lose the work.
TEST(Output, WhatFindsNoRoomIsSaidAndTheRanksGoOn) {
  const std::string job = built("bin/reigen") + " run -n 2 sh -c 'echo a; sleep 0.2; echo b; sleep 0.2; echo done >&2'";
  const Ran ran = run({"sh", "-c", job + " > /dev/full"});
  EXPECT_EQ(ran.code, 74);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("[1] done"), HasSubstr("output was lost: No space left on device")));
}

TEST(Output, ALongLineOfOneRankStaysWhole) {
  const Ran ran = run(reigen_run({"-n", "1", "sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x; echo; echo end"}));
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.out, std::string(300000, 'x') + "\nend\n");
}

TEST(Output, LinesOfTwoRanksNeverMix) {
  const Ran ran = run(reigen_run({"-n", "2", built("tests/launch_test_rank"), "chatter", "2000"}));
  ASSERT_EQ(ran.code, 0);
  std::map<std::string, int> lines;
  std::istringstream text(ran.out);
  for (std::string line; std::getline(text, line);) ++lines[line];
  EXPECT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines["[0] " + std::string(60, 'a')], 2000);
  EXPECT_EQ(lines["[1] " + std::string(60, 'b')], 2000);
}

TEST(Output, Prefixes) {
  EXPECT_EQ(run(reigen_run({"-n", "1", "echo", "x"})).out, "x\n");
  EXPECT_EQ(run(reigen_run({"-n", "1", "--prefix", "always", "echo", "x"})).out, "[0] x\n");
  EXPECT_EQ(run(reigen_run({"-n", "2", "--prefix", "none", "echo", "x"})).out, "x\nx\n");
}

TEST(Output, StreamsStayApart) {
  const Ran ran = run(reigen_run({"-n", "1", "sh", "-c", "echo out; echo err >&2"}));
  EXPECT_EQ(ran.out, "out\n");
  EXPECT_EQ(ran.err, "err\n");
}

TEST(Output, LongLinesAreCutAndNothingIsLost) {
  const Ran ran = run(reigen_run(
      {"-n", "1", "--prefix", "always", "sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x; echo; printf end"}));
  EXPECT_EQ(ran.out, "[0] " + std::string(65536, 'x') + "\n[0] " + std::string(100000 - 65536, 'x') + "\n[0] end\n");
}

TEST(Output, ABigOutputArrivesWhole) {
  const Ran ran = run(reigen_run({"-n", "2", "--prefix", "none", "sh", "-c", "yes 0123456789abcdef | head -n 200000"}));
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(ran.out.size(), 2U * 200000U * 17U);
}

// The job has ended, and the reader of its output is slow. A signal that ends nothing must not lose output.
TEST(Output, ASignalWhileAReaderIsWaitedForLosesNothing) {
  const std::string job = built("bin/reigen") + " run -n 1 sh -c 'echo $PPID; yes | head -c 150000'";
  const Ran ran = run({"sh", "-c", job + " | { read pid; sleep 0.3; kill -CONT $pid; sleep 0.1; wc -c; }"});
  EXPECT_EQ(ran.out, "150000\n");
}

TEST(Output, ProgressLinesOnlyInTheirLastStateWithoutATerminal) {
  EXPECT_EQ(run(reigen_run({"-n", "1", "printf", "10%%\\r20%%\\rdone\\n"})).out, "done\n");
  EXPECT_EQ(run(reigen_run({"-n", "1", "printf", "10%%\\r20%%\\r"})).out, "20%\n");
}

TEST(Output, LogFilesHoldWhatEachRankPrints) {
  std::string folder = ::testing::TempDir() + "reigen_logs_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string logs = folder + "/a/b";
  const Ran ran =
      run(reigen_run({"-n", "2", "--log-dir", logs, "sh", "-c", "echo rank $RANK; printf '1%%\\r2%%\\n'; printf end"}));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(read_file(logs + "/rank_0.log"), "rank 0\n2%\nend\n");
  EXPECT_EQ(read_file(logs + "/rank_1.log"), "rank 1\n2%\nend\n");
  EXPECT_THAT(ran.out, HasSubstr("[1] rank 1\n"));

  const Ran blocked = run(reigen_run({"-n", "1", "--log-dir", logs + "/rank_0.log", "true"}));
  EXPECT_EQ(blocked.code, 74);
  EXPECT_THAT(blocked.err, HasSubstr("rank_0.log"));
  std::filesystem::remove_all(folder);
}

TEST(Output, AGoneReaderEndsTheRanksAsWithoutALauncher) {
  const Ran ran = run({"sh", "-c", built("bin/reigen") + " run -n 2 yes | head -n 3"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 3);
  EXPECT_THAT(ran.err, HasSubstr("SIGPIPE"));
}

TEST(Output, LinesThatWereJustShownAreNotRepeatedInTheReport) {
  const std::string fails = "[ $RANK = 1 ] && { echo words; echo error >&2; exit 3; }; sleep 60";
  const auto launch = [&](const std::string& script) {
    return run({"sh", "-c", std::string("exec ") + built("bin/reigen") + " run -n 2 sh -c '" + script + "' 2>&1"});
  };
  const Ran just = launch(fails);
  EXPECT_EQ(just.code, 3);
  EXPECT_THAT(just.out, AllOf(HasSubstr("[1] error\n"), HasSubstr("rank 1 of 2 failed"), Not(HasSubstr("    error"))));
  // The lines are repeated if another rank's line came in between, or if half of them went to another stream.
  EXPECT_THAT(launch("[ $RANK = 1 ] && { echo words; sleep 0.6; exit 3; }; sleep 0.3; echo other; sleep 60").out,
              HasSubstr("    words\n"));
  EXPECT_THAT(run(reigen_run({"-n", "2", "sh", "-c", fails})).err, HasSubstr("    words\n    error\n"));
}

// Runs the launcher on a terminal of 90 columns and returns its output there.
std::string on_terminal(std::vector<std::string> command, int* code) {
  int master = -1;
  const winsize size{24, 90, 0, 0};
  const pid_t pid = ::forkpty(&master, nullptr, nullptr, &size);
  if (pid == 0) {
    reset_signals();
    std::vector<char*> words;
    for (std::string& word : command) words.push_back(word.data());
    words.push_back(nullptr);
    ::execv(words[0], words.data());
    ::_exit(126);
  }
  const UniqueFd terminal(master);
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = ::read(master, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  *code = WEXITSTATUS(status);
  return text;
}

TEST(Output, OnATerminalProgressIsDrawnInPlace) {
  int code = -1;
  const std::string text = on_terminal(reigen_run({"-n", "1", "sh", "-c",
                                                   "echo $REIGEN_CONSOLE; printf '50%%\\r'; sleep 0.3; echo done; "
                                                   "printf '99%%\\r'; sleep 0.3; echo bad >&2; sleep 0.3"}),
                                       &code);
  EXPECT_EQ(code, 0);
  EXPECT_EQ(text,
            "90\r\n"
            "\r\033[K\033[?7l50%\033[?7h\r\033[Kdone\r\n"
            "\r\033[K\033[?7l99%\033[?7h\r\033[Kbad\r\n99%\r\n");
}

// A rank draws only in the columns that its prefix leaves.
TEST(Output, APrefixTakesColumns) {
  int code = -1;
  EXPECT_EQ(on_terminal(reigen_run({"-n", "2", "sh", "-c", "[ $RANK = 0 ] && echo $REIGEN_CONSOLE || true"}), &code),
            "[0] 86\r\n");
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace reigen::launch::output_e2e_test
