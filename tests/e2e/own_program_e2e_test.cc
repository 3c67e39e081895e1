// A program made of a task and train::run has all features of `reigen train mnist`, under every launcher.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "format/temporary_folder.h"
#include "harness/folders.h"
#include "harness/read_file.h"
#include "launch/child_program.h"
#include "reigen/format/event_file.h"

namespace reigen {
namespace {

namespace fs = std::filesystem;
using launch::ChildProgram;
using launch::Ran;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::read_file;
using Words = std::vector<std::string>;

std::vector<double> losses_in(const fs::path& directory) {
  std::vector<double> losses;
  std::ifstream in(directory / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("loss")) losses.push_back(json["loss"]);
  }
  return losses;
}

int lines_with_errors(const std::string& text) {
  int found = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) found += line.find("error: ") != std::string::npos ? 1 : 0;
  return found;
}

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class OwnProgram : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  static Ran run(const Words& words) { return launch::run_training(words); }
  const tests::TemporaryFolder folder_;
};

TEST_F(OwnProgram, HelpNamesTheProgramAndItsOwnOptions) {
  const Ran ran = run({built("tests/own_program"), "--help"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("own: what only this program trains\n"),
                             HasSubstr(built("tests/own_program") + " -n 2 [options]"), HasSubstr("--model.dim"),
                             HasSubstr("--slow.step_ms"), HasSubstr("--train.epochs"), Not(HasSubstr("--data.path")),
                             Not(HasSubstr("reigen train"))));
}

TEST_F(OwnProgram, ThePlanOfAPresetIsPrintedOnceAndNothingIsTrained) {
  const Words words = {"--run.preset", "wide", "--optim.warmup", "1 epoch", "--run.dir", path("run"), "--run.plan"};
  for (const Words& start : {Words{built("tests/own_program")}, Words{built("tests/own_program"), "-n", "2"},
                             Words{built("bin/reigen"), "run", "-n", "2", built("tests/own_program")}}) {
    const Ran ran = run(start + words);
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("120 samples and 10 steps an epoch, 20 steps\n"));
    EXPECT_THAT(ran.out, HasSubstr("        0     0.00            0   0.05         warm-up to 0.5 at step 10\n"));
    EXPECT_THAT(ran.out, HasSubstr("       10     1.00          120   0.5          end of the warm-up\n"));
    EXPECT_EQ(ran.out.find("\n        9"), std::string::npos) << ran.out;
    EXPECT_EQ(ran.out.find("own: "), ran.out.rfind("own: "));
  }
  EXPECT_FALSE(fs::exists(path("run")));
  const Ran printed = run({built("tests/own_program"), "--run.preset", "wide", "--optim.lr", "0.25", "--print-config"});
  EXPECT_THAT(printed.out, AllOf(HasSubstr("preset = \"wide\""), HasSubstr("\ndim = 16"), HasSubstr("\nlr = 0.25")));
  const Ran unknown = run({built("tests/own_program"), "--run.preset", "goyal"});
  EXPECT_EQ(unknown.code, 78);
  EXPECT_THAT(unknown.err, HasSubstr("must be none, wide"));
}

TEST_F(OwnProgram, TheSummaryOfTheModelIsPrintedOnceAndNothingIsTrained) {
  for (const Words& start : {Words{built("tests/own_program")}, Words{built("tests/own_program"), "-n", "2"},
                             Words{built("bin/reigen"), "run", "-n", "2", built("tests/own_program")}}) {
    const Ran ran = run(start + Words{"--run.dir", path("run"), "--run.summary"});
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, AllOf(HasSubstr("own: one sample of 1x"), HasSubstr("the model ")));
    EXPECT_EQ(ran.out.find("own: "), ran.out.rfind("own: "));
  }
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(OwnProgram, ALearningRateIsFoundAndOnlyItsCurveIsKept) {
  for (const Words& start : {Words{built("tests/own_program")}, Words{built("tests/own_program"), "-n", "2"},
                             Words{built("bin/reigen"), "run", "-n", "2", built("tests/own_program")}}) {
    fs::remove_all(path("run"));
    const Ran ran = run(start + Words{"--run.dir", path("run"), "--run.find_lr", "true"});
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out,
                AllOf(HasSubstr("own: finding a learning rate, up to 100 steps\n"), HasSubstr("        1e-07 "),
                      HasSubstr("suggestion: --optim.lr "), HasSubstr("find_lr\n")));
    EXPECT_EQ(ran.out.find("suggestion"), ran.out.rfind("suggestion"));
    const std::vector<fs::path> kept(fs::recursive_directory_iterator(path("run")), {});
    EXPECT_EQ(kept.size(), 2U) << "find_lr and its curve";
  }
  const Ran refused =
      run({built("tests/own_program"), "--run.dir", path("run"), "--run.find_lr", "--run.resume", "true"});
  EXPECT_EQ(refused.code, 78);
  EXPECT_THAT(refused.err, HasSubstr("run.find_lr begins with new weights or run.weights"));
  const Ran tested = run({built("tests/own_program"), "test", "--run.dir", path("run"), "--run.find_lr", "true"});
  EXPECT_EQ(tested.code, 78);
  EXPECT_THAT(tested.err, HasSubstr("test: run.find_lr trains"));
}

TEST_F(OwnProgram, AWrongOptionIsToldOnceWithTheNearestName) {
  for (const Words& launcher :
       {Words{built("tests/own_program")}, Words{built("bin/reigen"), "run", "-n", "2", built("tests/own_program")}}) {
    const Ran ran = run(launcher + Words{"--model.pwoer", "3"});
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("did you mean --model.power?"));
    EXPECT_EQ(lines_with_errors(ran.err), 1) << ran.err;
  }
  EXPECT_EQ(run({built("tests/own_program"), "--model.power", "0.5"}).code, 78);
}

TEST_F(OwnProgram, TrainsTheSameByItselfAndByALauncher) {
  const auto train = [&](const std::string& name, Words words) {
    const Ran ran = run(std::move(words) + Words{"--run.dir", path(name), "--model.dim", "5"});
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, AllOf(HasSubstr("own: "), HasSubstr("test loss"), Not(HasSubstr("accuracy")))) << name;
    EXPECT_THAT(read_file(path(name) + "/config.toml"), HasSubstr("dim = 5")) << name;
    return losses_in(path(name));
  };
  const auto alone = train("alone", {built("tests/own_program")});
  ASSERT_EQ(alone.size(), 20U);
  EXPECT_LT(std::accumulate(alone.end() - 5, alone.end(), 0.0), std::accumulate(alone.begin(), alone.begin() + 5, 0.0));
  for (const auto& losses :
       {train("two", {built("tests/own_program"), "-n", "2"}), train("three", {built("tests/own_program"), "-n", "3"}),
        train("run", {built("bin/reigen"), "run", "-n", "2", built("tests/own_program")}),
        train("threads", {built("tests/own_program"), "-n", "2", "--run.ranks", "threads"})}) {
    ASSERT_EQ(losses.size(), alone.size());
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], alone[i], 1e-5 * alone[i]) << i;
  }
}

// Each signal stops a run once, somewhere in its middle. With REIGEN_TEST_STOPS=20 each signal stops 20 runs
// (docs/testing.md).
TEST_F(OwnProgram, AWishToStopSavesAndThePrintedCommandGoesOnBitwise) {
  const char* times = std::getenv("REIGEN_TEST_STOPS");
  const int count = times != nullptr ? std::atoi(times) : 1;
  std::mt19937 random(std::random_device{}());
  const Words slow = {"--slow.step_ms", "20", "--train.log_every", "1", "--train.epochs", "8"};
  const Ran whole =
      run(Words{built("tests/own_program"), "-n", "2", "--run.dir", path("whole"), "--model.dim", "5"} + slow);
  ASSERT_EQ(whole.code, 0) << whole.err;
  int number = 0;
  for (int i = 0; i < count; ++i) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
      const Words start = number % 2 == 0 ? Words{built("tests/own_program"), "-n", "2"}
                                          : Words{built("bin/reigen"),       "run", "-n", "2", "--prefix", "none",
                                                  built("tests/own_program")};
      const std::string directory = path("it's stopped " + std::to_string(number++));
      // The command that goes on must also contain options that were set by variables.
      ChildProgram program(Words{"env", "REIGEN_MODEL_DIM=5"} + start + Words{"--run.dir", directory} + slow);
      const auto step = std::uniform_int_distribution<int>(1, 15)(random);
      ASSERT_TRUE(program.wait_for_text("step " + std::to_string(step) + "/80")) << program.out() << program.err();
      std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution<int>(0, 19)(random)));
      program.signal(signal);
      ASSERT_EQ(program.wait(), 75) << strsignal(signal) << " at step " << step << program.out() << program.err();
      const std::string mark = "go on with: ";
      const auto at = program.out().find(mark);
      ASSERT_NE(at, std::string::npos) << program.out();
      const auto end = program.out().find('\n', at);
      const std::string command = program.out().substr(at + mark.size(), end - at - mark.size());
      const Ran rest = run({"sh", "-c", command});
      ASSERT_EQ(rest.code, 0) << command << rest.err;
      EXPECT_EQ(losses_in(directory), losses_in(path("whole"))) << command;
      EXPECT_EQ(read_file(directory + "/model.safetensors"), read_file(path("whole") + "/model.safetensors"))
          << command;
    }
  }
}

const std::set<std::string> kTimes = {"time",       "samples_per_s", "step_ms",         "data_ms",
                                      "forward_ms", "backward_ms",   "comm_exposed_ms", "optimizer_ms"};

// The rows of the table, without the columns of times.
std::string table_in(const fs::path& file) {
  const auto cells_of = [](const std::string& line) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
    return cells;
  };
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> names = cells_of(line);
  std::string text = line + "\n";
  while (std::getline(in, line)) {
    const std::vector<std::string> cells = cells_of(line);
    for (std::size_t i = 0; i < cells.size(); ++i) text += (kTimes.contains(names.at(i)) ? "" : cells[i]) + ",";
    text += "\n";
  }
  return text;
}

// The curves for TensorBoard, without those of times.
std::string curves_in(const fs::path& directory) {
  std::string text;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (!format::is_event_file_name(entry.path().filename().string(), "run")) continue;
    format::read_events(read_file(entry.path()), [&](const format::Event& event) {
      for (const auto& [tag, value] : event.scalars) {
        if (!tag.starts_with("time/") && !tag.ends_with("samples_per_s"))
          text += fmt::format("{} {} {}\n", event.when.step, tag, value);
      }
      return true;
    });
  }
  return text;
}

// What a run has written, without its times: the lines of metrics.jsonl, the table, the curves, the list of the best
// checkpoints, and the states of callbacks and figures in the last checkpoint.
std::string written_in(const fs::path& directory) {
  std::string text = read_file(directory / "checkpoints/best/best.json");
  std::ifstream in(directory / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    auto json = nlohmann::json::parse(line);
    for (const std::string& key : kTimes) json.erase(key);
    text += json.dump() + "\n";
  }
  text += table_in(directory / "metrics.csv") + curves_in(directory);
  const auto manifest = nlohmann::json::parse(read_file(directory / "checkpoints/step_00000030/manifest.json"));
  for (const auto& [key, value] : manifest["content"]["options"].items()) {
    if (key.starts_with("state.")) text += key + " " + value.get<std::string>() + "\n";
  }
  return text;
}

// Each validation takes as long as a step, so kills come in validations and while the best checkpoints change too. With
// REIGEN_TEST_STOPS=20 there are 20 times as many kills.
TEST_F(OwnProgram, AKilledRunHasTheFiguresAndTheBestCheckpointsOfAnUndisturbedOne) {
  const char* times = std::getenv("REIGEN_TEST_STOPS");
  const int kills = 8 * (times != nullptr ? std::atoi(times) : 1);
  std::mt19937 random(std::random_device{}());
  const Words words = {built("tests/own_program"),
                       "-n",
                       "2",
                       "--run.ranks",
                       "threads",
                       "--slow.step_ms",
                       "10",
                       "--model.swings",
                       "true",
                       "--train.epochs",
                       "3",
                       "--validate.every",
                       "1",
                       "--checkpoint.every",
                       "2",
                       "--checkpoint.monitor",
                       "swing",
                       "--checkpoint.top_k",
                       "2",
                       "--log.csv",
                       "true"};
  const Ran whole = run(words + Words{"--run.dir", path("whole")});
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Words killed = words + Words{"--run.dir", path("killed")};
  for (int i = 0; i < kills; ++i) {
    ChildProgram program(i == 0 ? killed : killed + Words{"--run.resume", "true"});
    if (!program.wait_for_text("files in")) break;  // it has ended already
    std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution<int>(20, 250)(random)));
    program.signal(SIGKILL);
    program.wait();
  }
  const Ran rest = run(killed + Words{"--run.resume", "true"});
  ASSERT_EQ(rest.code, 0) << rest.err;
  const std::string expected = written_in(path("whole"));
  EXPECT_THAT(expected, AllOf(HasSubstr("test/swing"), HasSubstr("state.callback.sums.1"), HasSubstr("30,")));
  EXPECT_EQ(written_in(path("killed")), expected);
  EXPECT_EQ(read_file(path("killed") + "/model.safetensors"), read_file(path("whole") + "/model.safetensors"));
}

}  // namespace
}  // namespace reigen
