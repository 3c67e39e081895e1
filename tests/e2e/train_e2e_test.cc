// The launcher, the training program and the example as a user starts them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/machine/process_state.h"
#include "flight/find.h"
#include "harness/folders.h"
#include "harness/read_file.h"
#include "launch/child_program.h"

namespace reigen {
namespace {

namespace fs = std::filesystem;
using launch::ChildProgram;
using launch::Ran;
using launch::wait_for;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::read_file;
using Words = std::vector<std::string>;

// The number of lines that begin with "error: ". There must be one for a whole job.
int errors_in(const std::string& text) {
  int found = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) found += line.rfind("error: ", 0) == 0 ? 1 : 0;
  return found;
}

void write_idx(const fs::path& path, const std::vector<std::uint32_t>& sizes, const std::string& bytes) {
  std::string text = {0, 0, 8, static_cast<char>(sizes.size())};
  for (const std::uint32_t size : sizes) {
    for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(size >> shift & 0xffU);
  }
  std::ofstream(path, std::ios::binary) << text << bytes;
}

// Writes files like MNIST's, with a few images that a net can learn: noise, and a bright bar whose place is the class.
void write_small_mnist(const fs::path& folder, const std::string& name, std::uint32_t count) {
  std::string images;
  std::string labels;
  std::uint32_t noise = count;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t label = i * 7 % 10;
    labels += static_cast<char>(label);
    for (std::uint32_t pixel = 0; pixel < 28 * 28; ++pixel) {
      noise = noise * 1664525U + 1013904223U;
      const bool bar = pixel / 28 / 2 == label + 2;
      images += static_cast<char>((bar ? 160U : 0U) + (noise >> 26));
    }
  }
  write_idx(folder / (name + "-images-idx3-ubyte"), {count, 28, 28}, images);
  write_idx(folder / (name + "-labels-idx1-ubyte"), {count}, labels);
}

class TrainE2e : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("reigen_train_e2e_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "data");
    write_small_mnist(root_ / "data", "train", 1300);
    write_small_mnist(root_ / "data", "t10k", 50);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string path(const std::string& name) const { return (root_ / name).string(); }

  // `reigen train mnist -n ranks --run.dir name ...` on 290 samples.
  Words train(int ranks, const std::string& name, const Words& more = {}) const {
    Words words = {built("bin/reigen"),   "train",        "mnist",    "-n",
                   std::to_string(ranks), "--run.dir",    path(name), "--data.path",
                   path("data"),          "--data.limit", "290"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  Ran run_train(int ranks, const std::string& name, const Words& more = {}) const {
    const Ran ran = launch::run_training(train(ranks, name, more));
    EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
    return ran;
  }

  std::vector<double> losses(const std::string& name) const {
    std::vector<double> values;
    std::ifstream in(root_ / name / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("loss")) values.push_back(json["loss"]);  // lines of validations have no loss
    }
    return values;
  }

  std::string model(const std::string& name) const { return read_file(root_ / name / "model.safetensors"); }

  void expect_same_losses(const std::string& name, const std::string& reference, double tolerance) const {
    const auto got = losses(name);
    const auto expected = losses(reference);
    ASSERT_EQ(got.size(), expected.size());
    ASSERT_FALSE(expected.empty());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(std::abs(got[i] - expected[i]), tolerance * std::abs(expected[i])) << name << ", step " << i + 1;
    }
  }

  fs::path root_;
};

TEST_F(TrainE2e, EveryNumberOfRanksGivesTheLossesOfOne) {
  const Words options = {"--train.global_batch", "97", "--train.precision", "fp64",
                         "--train.epochs",       "2"};  // steps of 97 and 12
  run_train(1, "1", options);
  for (const int ranks : {2, 3, 4}) {
    run_train(ranks, std::to_string(ranks), options);
    expect_same_losses(std::to_string(ranks), "1", 1e-9);
  }
  Words threads = options;
  threads.insert(threads.end(), {"--run.ranks", "threads"});
  run_train(3, "threads", threads);
  expect_same_losses("threads", "1", 1e-9);
  const auto summary = nlohmann::json::parse(read_file(root_ / "threads" / "summary.json"));
  EXPECT_EQ(summary["world_size"], 3);
}

TEST_F(TrainE2e, SinglePrecisionAgreesOverTheFirstSteps) {
  const Words options = {"--train.global_batch", "29", "--train.epochs", "2"};
  run_train(1, "1", options);
  run_train(3, "3", options);
  expect_same_losses("3", "1", 1e-5);
}

TEST_F(TrainE2e, ALastBatchOfOneSampleIsCountedOnce) {
  const Words options = {"--train.global_batch", "17", "--train.precision", "fp64",
                         "--train.epochs",       "1"};  // 290 = 17 x 17 + 1
  run_train(1, "1", options);
  run_train(3, "3", options);
  EXPECT_EQ(losses("3").size(), 18U);
  expect_same_losses("3", "1", 1e-9);
}

TEST_F(TrainE2e, TheSameCommandTwiceGivesTheSameBits) {
  EXPECT_THAT(run_train(2, "a").out, HasSubstr("290 digits from " + path("data")));
  run_train(2, "b");
  EXPECT_EQ(model("a"), model("b"));
  EXPECT_FALSE(model("a").empty());
}

TEST_F(TrainE2e, StoppedAtAStepItGoesOnBitwise) {
  const Words options = {"--train.global_batch", "40", "--train.epochs", "1"};
  run_train(2, "whole", options);
  Words first = options;
  first.insert(first.end(), {"--train.max_steps", "6"});
  run_train(2, "parts", first);
  Words rest = options;
  rest.insert(rest.end(), {"--run.resume", "true"});
  run_train(2, "parts", rest);
  EXPECT_EQ(model("parts"), model("whole"));
  EXPECT_EQ(losses("parts"), losses("whole"));
  EXPECT_THAT(run_train(2, "parts", rest).out, HasSubstr("already finished"));
}

TEST_F(TrainE2e, TheEnvironmentMayAskForThreads) {
  const Words job = {built("bin/reigen"), "train", "mnist",     "-n",       "2", "--data.path", path("data"),
                     "--train.max_steps", "2",     "--run.dir", path("run")};
  const Ran ran = launch::run_training(job, {"REIGEN_RUN_RANKS=threads"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("2 ranks"));
}

TEST_F(TrainE2e, AReaderThatGoesAwayEndsNothing) {
  const std::string job = std::string(built("bin/reigen")) + " train mnist -n 2 --data.path " + path("data") +
                          " --train.max_steps 4 --train.log_every 1 --run.dir " + path("run") + " | head -1";
  EXPECT_EQ(launch::run_training({"bash", "-o", "pipefail", "-c", job}).code, 0);
  EXPECT_FALSE(model("run").empty());
}

TEST_F(TrainE2e, TermMakesACheckpointAndTheRunGoesOnBitwise) {
  const Words options = {"--train.global_batch", "10", "--train.epochs", "3", "--train.log_every", "1"};
  run_train(2, "whole", options);
  ChildProgram program(train(2, "parts", options));
  ASSERT_TRUE(program.wait_for_text("step 3/"));
  program.signal(SIGTERM);
  EXPECT_EQ(wait_for(program), 75) << program.out() << program.err();
  EXPECT_THAT(program.out(), HasSubstr("go on with: " + built("bin/reigen") + " train mnist -n 2 "));
  EXPECT_EQ(errors_in(program.err()), 0);
  const std::size_t done = losses("parts").size();
  EXPECT_GE(done, 3U);
  EXPECT_LT(done, losses("whole").size());
  Words rest = options;
  rest.insert(rest.end(), {"--run.resume", "true"});
  run_train(2, "parts", rest);
  EXPECT_EQ(model("parts"), model("whole"));
  EXPECT_EQ(losses("parts"), losses("whole"));
}

// Groups of one rank within a rank do not count as jobs, wherever the program makes them.
TEST_F(TrainE2e, FlightFindsOneJobWithAllItsRanks) {
  ChildProgram program(train(3, "flight",
                             {"--parallel.shard", "parameters", "--train.global_batch", "10", "--train.epochs", "500",
                              "--train.log_every", "1"}));
  ASSERT_TRUE(program.wait_for_text("step 2/"));
  int jobs_of_ours = 0;
  for (const flight::LiveJob& job : flight::find_jobs()) {
    const bool ours =
        job.pid == program.pid() || std::any_of(job.ranks.begin(), job.ranks.end(), [&](const flight::ReadRank& rank) {
          return base::parent_of(rank.pid) == program.pid();
        });
    if (!ours) continue;
    ++jobs_of_ours;
    EXPECT_EQ(job.pid, program.pid());
    EXPECT_EQ(job.ranks.size(), 3U);
    for (const flight::ReadRank& rank : job.ranks) {
      EXPECT_FALSE(rank.operations.empty());
      const Ran by_rank = launch::run({built("bin/reigen"), "flight", std::to_string(rank.pid)});
      EXPECT_THAT(by_rank.out, HasSubstr("job " + std::to_string(program.pid()) + ": 3 ranks"));
    }
  }
  EXPECT_EQ(jobs_of_ours, 1);
  program.signal(SIGTERM);
  EXPECT_EQ(wait_for(program), 75) << program.out() << program.err();
}

// The variables that srun, mpirun or torchrun sets for rank `rank` of two.
Words variables_of(const std::string& launcher, int rank, const std::string& job) {
  const std::string r = std::to_string(rank);
  if (launcher == "srun") {
    return {"SLURM_PROCID=" + r,   "SLURM_LOCALID=" + r, "SLURM_STEP_NUM_TASKS=2",     "SLURM_STEP_NUM_NODES=1",
            "SLURM_JOB_ID=" + job, "SLURM_STEP_ID=0",    "SLURM_STEP_TASKS_PER_NODE=2"};
  }
  if (launcher == "mpirun") {
    return {"OMPI_COMM_WORLD_RANK=" + r, "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=" + r,
            "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=" + job};
  }
  return {"RANK=" + r,
          "LOCAL_RANK=" + r,
          "WORLD_SIZE=2",
          "LOCAL_WORLD_SIZE=2",
          "MASTER_ADDR=127.0.0.1",
          "MASTER_PORT=1",
          "TORCHELASTIC_RUN_ID=" + job,
          "TORCHELASTIC_USE_AGENT_STORE=True"};
}

// Each process must be a rank of the launcher's job, and not a job of one rank.
TEST_F(TrainE2e, UnderAnotherLauncherItIsOneOfItsRanks) {
  const Words options = {"--train.global_batch", "10", "--train.epochs", "3", "--train.log_every", "1"};
  run_train(2, "whole", options);
  for (const auto& [launcher, command] : {std::pair{"srun", "srun -N 1 -n 2 "},
                                          {"mpirun", "mpirun -n 2 "},
                                          {"torchrun", "torchrun --nproc-per-node 2 --no-python "}}) {
    SCOPED_TRACE(launcher);
    Words words = train(2, launcher, options);
    words.erase(words.begin() + 3, words.begin() + 5);  // removes -n 2
    const std::string job = std::to_string(::getpid());
    ChildProgram first(words, variables_of(launcher, 0, job));
    ChildProgram second(words, variables_of(launcher, 1, job));
    ASSERT_TRUE(first.wait_for_text("step 3/")) << first.out() << first.err() << second.err();
    first.signal(SIGTERM);
    EXPECT_EQ(wait_for(first), 75) << first.out() << first.err();
    EXPECT_EQ(wait_for(second), 75) << second.out() << second.err();
    EXPECT_THAT(first.out(), HasSubstr("2 ranks"));
    EXPECT_EQ(second.out(), "");
    EXPECT_THAT(first.out(), HasSubstr("go on with: " + std::string(command) + built("bin/reigen") + " train mnist"));
    const auto done = losses(launcher);
    const auto all = losses("whole");
    ASSERT_LE(done.size(), all.size());
    EXPECT_TRUE(std::equal(done.begin(), done.end(), all.begin()));
  }
}

TEST_F(TrainE2e, UnderAnotherLauncherAnotherNumberOfRanksIsRefused) {
  const Ran ran = launch::run_training(train(4, "run"), variables_of("srun", 0, std::to_string(::getpid())));
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("-n 4: Slurm started 2 ranks"));
}

TEST_F(TrainE2e, TheExampleGivesTheRecipesLosses) {
  run_train(2, "recipe", {"--data.limit", "0"});
  const Ran example =
      launch::run_training({built("bin/reigen"), "run", "-n", "2", built("bin/mnist_ddp"), path("data")});
  ASSERT_EQ(example.code, 0) << example.out << example.err;
  const std::string mark = "step 10 loss ";
  const auto at = example.out.find(mark);
  ASSERT_NE(at, std::string::npos) << example.out;
  EXPECT_EQ(std::stod(example.out.substr(at + mark.size())), losses("recipe").at(9));
}

TEST_F(TrainE2e, BadInputIsOneClearErrorWithItsCode) {
  fs::create_directories(path("cut"));
  for (const char* name : {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
                           "t10k-labels-idx1-ubyte.gz"}) {
    std::ofstream(root_ / "cut" / name, std::ios::binary) << "\x1f\x8b\x08";  // a gzip file that ends in its header
  }
  fs::copy(root_ / "data", root_ / "half");
  fs::resize_file(root_ / "half" / "t10k-images-idx3-ubyte", 100);  // the damage must be found before training begins
  std::ofstream(root_ / "file") << "in the way";
  std::ofstream(root_ / "options.toml") << "[train]\nepoch = 3\n";
  const struct {
    Words options;
    int code;
    std::string text;
  } kCases[] = {
      {{"--data.path", path("absent")}, 66, "absent"},
      {{"--data.path", path("cut")}, 65, "cut"},
      {{"--data.path", path("half")}, 65, "t10k-images"},
      {{"--train.global_batch", "0"}, 78, "train.global_batch = 0: must be a whole number of at least 1"},
      {{"--train.epochs", "-1"}, 78, "train.epochs = -1: must be a whole number of at least 1"},
      {{"--optim.lr", "-1"}, 78, "optim.lr = -1: must be a number above 0"},
      {{"--train.epoch", "3"}, 2, "did you mean --train.epochs?"},
      {{"--config", path("options.toml")}, 78, "options.toml:2:1: unknown key train.epoch"},
      {{"--config", path("absent.toml")}, 66, "absent.toml"},
      {{"--run.dir", path("file") + "/run"}, 74, "cannot create the run directory"},
      {{"--run.resume", path("absent")}, 66, "cannot resume"},
  };
  bool are_threads = false;  // every second case, which starts one process in place of two
  for (const auto& c : kCases) {
    Words options = c.options;
    if (are_threads) options.emplace_back("--run.ranks=threads");
    are_threads = !are_threads;
    const Ran ran = launch::run_training(train(2, "run", options));
    EXPECT_EQ(ran.code, c.code) << c.text << '\n' << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("error: "));
    EXPECT_THAT(ran.err, HasSubstr(c.text));
    EXPECT_LE(errors_in(ran.err), 1) << ran.err;
    EXPECT_THAT(ran.err, Not(AnyOf(HasSubstr("last lines"), HasSubstr("flight"))));
    EXPECT_FALSE(fs::exists(root_ / "run")) << c.text;
  }
  const Ran recipe = launch::run_training({built("bin/reigen"), "train", "mnits", "-n", "2"});
  EXPECT_EQ(recipe.code, 2);
  EXPECT_THAT(recipe.err, HasSubstr("did you mean mnist?"));
  const std::size_t said = recipe.err.find("did you mean");
  EXPECT_EQ(recipe.err.find("did you mean", said + 1), std::string::npos) << "once for the job:\n" << recipe.err;
}

TEST_F(TrainE2e, HelpAndThePrintedConfiguration) {
  const Ran help = launch::run_training({built("bin/reigen"), "train", "mnist", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--train.epochs"));
  EXPECT_EQ(launch::run_training({built("bin/reigen-train"), "--help"}).code, 0);
  EXPECT_EQ(launch::run_training({built("bin/reigen-train")}).code, 2);

  const Ran printed =
      launch::run_training({built("bin/reigen"), "train", "mnist", "--train.epochs", "7", "--print-config"});
  EXPECT_EQ(printed.code, 0);
  std::ofstream(root_ / "printed.toml") << printed.out;
  const Ran again =
      launch::run_training({built("bin/reigen"), "train", "mnist", "--config", path("printed.toml"), "--print-config"});
  EXPECT_EQ(again.out, printed.out);
  EXPECT_THAT(again.out, HasSubstr("epochs = 7"));
}

TEST_F(TrainE2e, WithoutALauncherTheProgramStartsItsRanksItself) {
  const Ran ran = launch::run_training({built("bin/reigen-train"), "mnist", "-n", "2", "--run.dir", path("run"),
                                        "--data.path", path("data"), "--train.max_steps", "1"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(nlohmann::json::parse(read_file(root_ / "run" / "summary.json"))["world_size"], 2);
}

}  // namespace
}  // namespace reigen
