// Users and schedulers can ask a run to stop in several ways. Each time the run saves and ends with 75, and the printed
// command goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/machine/process_state.h"
#include "harness/folders.h"
#include "harness/read_file.h"
#include "launch/child_program.h"

namespace reigen {
namespace {

namespace fs = std::filesystem;
using launch::ChildProgram;
using launch::Ran;
using launch::wait_for;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::read_file;
using Words = std::vector<std::string>;

class Stops : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("reigen_stops_e2e_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  static Words steps(int number) {
    return {"--model.dim",    "64",   "--train.global_batch", "32", "--train.max_steps", std::to_string(number),
            "--train.epochs", "1000", "--train.log_every",    "1"};
  }
  Words train(const std::string& name, const Words& more) const {
    Words words = {built("bin/reigen"), "train", "mlp", "-n", "2", "--run.dir", (root_ / name).string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  std::string model(const std::string& name) const { return read_file(root_ / name / "model.safetensors"); }
  std::string metrics_steps(const std::string& name) const { return read_file(root_ / name / "metrics.jsonl"); }

  fs::path root_;
};

std::string printed_command(const std::string& text) {
  const std::string mark = "go on with: ";
  const std::size_t at = text.find(mark);
  return at == std::string::npos ? "" : text.substr(at + mark.size(), text.find('\n', at) - at - mark.size());
}

// Each rank has a process group of its own, so a test that stops all processes must signal each rank.
std::vector<pid_t> ranks_of(const ChildProgram& job) {
  std::vector<pid_t> ranks;
  for (const pid_t child : base::children_of(job.pid())) {
    if (::getpgid(child) == child && read_file("/proc/" + std::to_string(child) + "/comm") != "reigen-guardian\n")
      ranks.push_back(child);
  }
  return ranks;
}

TEST_F(Stops, EverySpellingSavesAndThePrintedCommandGoesOnBitwise) {
  const Ran whole = launch::run_training(train("whole", steps(30)));
  ASSERT_EQ(whole.code, 0) << whole.err;
  enum class To { kLauncher, kRank, kAll };
  const struct {
    const char* name;
    int signal;
    To to;
  } kCases[] = {{"INT", SIGINT, To::kAll}, {"HUP", SIGHUP, To::kLauncher}, {"USR1", SIGUSR1, To::kRank}};
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.name);
    Words words = steps(30);
    words.insert(words.begin(), "--data.may_differ");
    ChildProgram job(train(c.name, words));
    ASSERT_TRUE(job.wait_for_text("step 3/"));
    const std::vector<pid_t> ranks = ranks_of(job);
    ASSERT_EQ(ranks.size(), 2U);
    if (c.to == To::kRank) ::kill(ranks[1], c.signal);
    for (const pid_t rank : c.to == To::kAll ? ranks : std::vector<pid_t>()) ::kill(rank, c.signal);
    if (c.to != To::kRank) job.signal(c.signal);
    EXPECT_EQ(wait_for(job), 75) << job.out() << job.err();
    EXPECT_THAT(job.err(), Not(HasSubstr("failed")));
    const std::string command = printed_command(job.out());
    ASSERT_THAT(command, HasSubstr("--run.resume true"));
    EXPECT_THAT(command, Not(HasSubstr("may_differ")));
    const Ran on = launch::run_training({"sh", "-c", command});
    EXPECT_EQ(on.code, 0) << on.err;
    EXPECT_EQ(model(c.name), model("whole"));
  }
}

TEST_F(Stops, AFlagPicksTheSignals) {
  Words words = steps(100000);
  words.insert(words.end(), {"--run.stop_signals", "term"});
  ChildProgram job(train("run", words));
  ASSERT_TRUE(job.wait_for_text("step 3/"));
  job.signal(SIGUSR1);
  EXPECT_EQ(wait_for(job), 128 + SIGUSR1) << job.err();
}

TEST_F(Stops, ATimeEndsTheRunAsASignalDoes) {
  Words words = steps(100000);
  words.insert(words.end(), {"--run.stop_after", "3"});
  const Ran ran = launch::run_training(train("run", words));
  EXPECT_EQ(ran.code, 75) << ran.err;
  EXPECT_THAT(printed_command(ran.out), HasSubstr("--run.stop_after 3"));
  EXPECT_TRUE(fs::exists(root_ / "run" / "checkpoints"));
}

// Without a launcher the rank itself acknowledges the signal.
TEST_F(Stops, AloneTheRankSaysWhatASecondCtrlCDoes) {
  Words words = steps(100000);
  words.insert(words.begin(), {built("bin/reigen-train"), "mlp", "--run.dir", (root_ / "run").string()});
  ChildProgram rank(words);
  ASSERT_TRUE(rank.wait_for_text("step 3/"));
  rank.signal(SIGINT);
  EXPECT_EQ(wait_for(rank), 75);
  EXPECT_THAT(rank.err(), HasSubstr("SIGINT: saving after this step; Ctrl-C once more ends at once"));
}

}  // namespace
}  // namespace reigen
