// Jobs fail or hang. The launcher and `reigen flight` show the last calls of each rank, and no file is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "flight/find.h"
#include "flight/recorder.h"
#include "harness/folders.h"
#include "launch/child_program.h"
#include "reigen/launch/job.h"

namespace reigen::launch {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Ran flight(const std::vector<std::string>& words) {
  std::vector<std::string> command = {built("bin/reigen"), "flight"};
  command.insert(command.end(), words.begin(), words.end());
  return run(command);
}

std::vector<std::string> faulty(const std::string& ranks, const std::string& fault, const std::string& rank) {
  return reigen_run({"-n", ranks, built("tests/faulty_rank"), fault, "step", rank});
}

std::size_t own_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// The names of Reigen's files, because other programs may use the folder meanwhile.
std::vector<std::string> shared_files_of_ours() {
  std::error_code ignored;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find("reigen") != std::string::npos || name.find("flight") != std::string::npos) names.push_back(name);
  }
  return names;
}

// Runs `reigen flight` until its output contains the text, because a job needs some time until it hangs.
Ran flight_that_shows(const std::string& text, const std::vector<std::string>& words) {
  Ran ran;
  for (int i = 0; i < 200; ++i) {
    ran = flight(words);
    if (ran.out.find(text) != std::string::npos) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return ran;
}

constexpr const char* kStep20 = R"(all_reduce\(100000 float32, avg\) "step 20")";

TEST(Flight, CallsThatDifferAreShownSideBySide) {
  const Ran ran = run(faulty("3", "differ", "1"));
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("what the ranks called last"));
  EXPECT_THAT(ran.err,
              HasSubstr(R"(group "world", 3 ranks: all completed #19 all_reduce(100000 float32, avg) "step 19")"));
  // The launcher may have ended a rank before the rank got the error.
  EXPECT_THAT(ran.err, ContainsRegex(std::string("ranks? 0.* ") + kStep20 + " +(failed|unfinished)"));
  EXPECT_THAT(ran.err, ContainsRegex(R"(rank 1 +all_reduce\(99999 float32, avg\) "step 20" +(failed|unfinished))"));
  EXPECT_THAT(ran.err, ContainsRegex("failed after .*: the calls differ"));
}

TEST(Flight, TheLastCallOfAKilledRankIsShown) {
  const Ran ran = run(faulty("2", "kill", "1"));
  EXPECT_EQ(ran.code, 137);
  // The other ranks may have been ended before they made another call.
  EXPECT_THAT(ran.err,
              AllOf(HasSubstr("what the ranks called last"), HasSubstr("group \"world\", 2 ranks: all completed #1")));
  EXPECT_THAT(ran.err, ContainsRegex("all completed #19|rank 1 .*step 19"));
  EXPECT_THAT(shared_files_of_ours(), ::testing::IsEmpty());
}

TEST(Flight, AJobThatEndsWellSaysNothing) {
  const Ran ran = run(faulty("2", "none", "1"));
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.err, Not(HasSubstr("flight")));
}

TEST(Flight, AProgramWithoutReigenFailsAsEver) {
  const Ran ran = run(reigen_run({"-n", "2", "sh", "-c", "exit 3"}));
  EXPECT_EQ(ran.code, 3);
  EXPECT_THAT(ran.err, Not(HasSubstr("flight")));
}

TEST(Flight, AHangingJobShowsWhoWaits) {
  ChildProgram job(faulty("3", "stop", "2"));
  ASSERT_TRUE(job.wait_for_text("pid ", 3));
  const std::vector<pid_t> ranks = pids_after("pid", job.out());
  const std::string stopped = "is stopped (SIGSTOP)";
  const Ran by_launcher = flight_that_shows("#20    ranks 0, 1", {std::to_string(job.pid())});
  EXPECT_EQ(by_launcher.code, 0) << by_launcher.err;
  EXPECT_THAT(by_launcher.out, ContainsRegex("rank 2 \\(pid [0-9]+\\) is stopped"));
  EXPECT_THAT(by_launcher.out,
              ContainsRegex(std::string("#20 +ranks 0, 1 +") + kStep20 + " +unfinished, called .* ago"));
  EXPECT_THAT(by_launcher.out, ContainsRegex("rank 2 +has not called it; its last: #19 .*done .* ago"));
  for (const pid_t rank : ranks) {
    const Ran by_rank = flight({std::to_string(rank)});
    EXPECT_THAT(by_rank.out, AllOf(HasSubstr(stopped), HasSubstr("ranks 0, 1")));
    EXPECT_THAT(by_rank.out, HasSubstr("job " + std::to_string(job.pid()) + ": 3 ranks"));
  }
  const Ran json = flight({std::to_string(job.pid()), "--json", "-"});
  std::istringstream text(json.out);
  int lines = 0;
  int open = 0;
  for (std::string line; std::getline(text, line); ++lines) {
    open += nlohmann::json::parse(line).value("state", "") == "running" ? 1 : 0;
  }
  EXPECT_EQ(lines, 3 + 21 + 21 + 20);
  EXPECT_EQ(open, 2);
  for (const pid_t rank : ranks) ::kill(rank, SIGCONT);  // the job was not disturbed and runs to its end
  EXPECT_EQ(job.wait(), 0) << job.err();
}

TEST(Flight, RefusesWhatItCannotShow) {
  EXPECT_EQ(flight({"x"}).code, 2);
  EXPECT_EQ(flight({"0"}).code, 2);
  EXPECT_EQ(flight({"1", "2"}).code, 2);
  const Ran nobody = flight({"2000000000"});
  EXPECT_EQ(nobody.code, 66);
  EXPECT_THAT(nobody.err, HasSubstr("there is no process 2000000000"));
  ChildProgram stranger({"sleep", "60"});
  const Ran without = flight({std::to_string(stranger.pid())});
  EXPECT_EQ(without.code, 66);
  EXPECT_THAT(without.err, AllOf(HasSubstr("has no flight record"), HasSubstr("fix:")));
}

// Needs two users, one of whom can become the other.
TEST(Flight, RefusesAnotherUsersProcess) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root: cannot become somebody else";
  ChildProgram job(faulty("2", "stop", "1"));
  ASSERT_TRUE(job.wait_for_text("pid ", 2));
  const std::string copy = ::testing::TempDir() + "reigen_flight_copy";
  std::filesystem::copy_file(built("bin/reigen"), copy, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::permissions(copy, std::filesystem::perms::others_read | std::filesystem::perms::others_exec,
                               std::filesystem::perm_options::add);
  const Ran ran = run({"setpriv", "--reuid", "65534", "--clear-groups", copy, "flight", std::to_string(job.pid())});
  std::filesystem::remove(copy);
  if (ran.code == 126 || ran.code == 127) GTEST_SKIP() << "the other user cannot run programs here: " << ran.err;
  EXPECT_EQ(ran.code, 77) << ran.err;
  EXPECT_THAT(ran.err, AllOf(HasSubstr("may not be looked into"), HasSubstr("fix:")));
}

TEST(Flight, TwoJobsMustBeToldApart) {
  ChildProgram first(faulty("2", "stop", "0"));
  ChildProgram second(faulty("2", "stop", "1"));
  ASSERT_TRUE(first.wait_for_text("pid ", 2));
  ASSERT_TRUE(second.wait_for_text("pid ", 2));
  Ran ran;
  for (int i = 0; i < 200 && ran.err.find(std::to_string(second.pid())) == std::string::npos; ++i) ran = flight({});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("several jobs"), HasSubstr(std::to_string(first.pid())),
                             HasSubstr(std::to_string(second.pid())), HasSubstr("faulty_rank")));
  EXPECT_EQ(flight({std::to_string(second.pid())}).code, 0);
}

TEST(Flight, AFileGetsEverything) {
  std::string folder = ::testing::TempDir() + "reigen_flight_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/flight.jsonl";
  const Ran ran = run(reigen_run({"-n", "2", "--flight", path, built("tests/faulty_rank"), "none", "step", "1"}));
  EXPECT_EQ(ran.code, 0) << ran.err;
  std::ifstream file(path);
  int operations = 0;
  for (std::string line; std::getline(file, line);) {
    const auto parsed = nlohmann::json::parse(line);
    if (parsed["what"] != "operation") continue;
    ++operations;
    EXPECT_EQ(parsed["state"], "done");
    EXPECT_LE(parsed["called_ns"], parsed["ended_ns"]);
  }
  EXPECT_EQ(operations, 2 * 51);
  const Ran refused = run(reigen_run({"-n", "2", "--flight", folder + "/none/flight.jsonl", "echo", "started"}));
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("cannot write"), HasSubstr("fix:")));
  EXPECT_EQ(refused.out, "");
  std::filesystem::remove_all(folder);
}

TEST(Flight, ARankInheritsItsOwnRecordOnly) {
  const std::string count = "ls -l /proc/self/fd | grep -c reigen-flight";
  const Ran ran = run(reigen_run({"-n", "3", "--prefix", "none", "sh", "-c", count}));
  EXPECT_EQ(ran.out, "1\n1\n1\n") << ran.err;
  const Ran nested = run(reigen_run(
      {"-n", "1", built("bin/reigen"), "run", "-n", "2", built("tests/faulty_rank"), "differ", "step", "1"}));
  EXPECT_THAT(nested.err, HasSubstr("all completed #19"));
}

TEST(Flight, RunJobLeavesNoDescriptors) {
  const auto job = [] { run_job({.command = {"true"}, .ranks = 3}); };
  job();  // opens the descriptors that are opened once and kept
  const std::size_t before = own_descriptors();
  for (int i = 0; i < 3; ++i) job();
  EXPECT_EQ(own_descriptors(), before);
}

TEST(Flight, FindsAProgramWithoutALauncher) {
  const auto recorder =
      flight::Recorder::open({.rank = 0, .size = 1}, {.kinds = {"barrier"}, .types = {}, .reductions = {}});
  recorder->called(recorder->join("alone", 0, 2), {.what = {.kind = 0}});
  const flight::LiveJob job = flight::find_job(::getpid());
  EXPECT_EQ(job.pid, ::getpid());
  ASSERT_EQ(job.ranks.size(), 1U);
  EXPECT_EQ(job.ranks[0].operations.size(), 1U);
  EXPECT_EQ(job.ranks[0].operations[0].group, "alone");
}

}  // namespace
}  // namespace reigen::launch
