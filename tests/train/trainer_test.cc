#include "reigen/train/trainer.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <sstream>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/data/loader.h"
#include "reigen/data/sampler.h"
#include "reigen/nn/init.h"
#include "reigen/tensor/tensor_files.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

TEST_F(TrainerTest, EveryNumberOfRanksTrainsTheSameModel) {
  fit(1, config("1"));
  const auto expected = losses("1");
  ASSERT_EQ(expected.size(), 9U);
  EXPECT_LT(expected[7], expected[0]);  // it learns
  const auto weights = tensor::read_tensors(root_ / "1" / "model.safetensors");
  for (const int ranks : {2, 3, 4}) {
    const std::string name = std::to_string(ranks);
    fit(ranks, config(name));
    const auto got = losses(name);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], expected[i], 1e-9 * expected[i]) << ranks << " ranks, step " << i + 1;
    const auto others = tensor::read_tensors(root_ / name / "model.safetensors");
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_LE((weights[i].tensor - others[i].tensor).abs().max().item<double>(), 1e-9) << weights[i].name;
    }
    EXPECT_EQ(summary(name)["test_accuracy"], summary("1")["test_accuracy"]);
    EXPECT_EQ(summary(name)["test_samples"], 511);
  }
}

// Steps of 97, 97 and 1 sample in micro-batches. Gradients add up, and ranks without a sample of a micro-batch take
// part too.
TEST_F(TrainerTest, AnyMicroBatchTrainsTheSameModel) {
  fit(1, config("whole"));
  const auto expected = losses("whole");
  for (const int ranks : {1, 2, 3}) {
    for (const std::int64_t micro : {7, 32, 1000}) {
      for (const char* shard : {"none", "gradients"}) {
        const std::string name = std::to_string(ranks) + "_" + std::to_string(micro) + shard;
        Config parts = config(name);
        parts.train.micro_batch = micro;
        parts.parallel.shard = shard;
        std::int64_t calls = 0;
        fit(ranks, parts, [&](int rank, SmallTask& task, TrainerOptions&) {
          if (rank == 0) task.before_call = [&](std::int64_t call) { calls = call; };
        });
        const auto got = losses(name);
        ASSERT_EQ(got.size(), expected.size());
        for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-9 * expected[i]) << name;
        const std::int64_t share = (97 + ranks - 1) / ranks;
        EXPECT_EQ(calls, 3 * (2 * ((share + micro - 1) / micro) + 1)) << name;
      }
    }
  }
}

struct NoSamples : data::Dataset {
  std::int64_t size() const override { return 0; }
  const std::string& name() const override {
    static const std::string kName = "none";
    return kName;
  }
  data::Samples gather(std::span<const std::int64_t>) const override { return {}; }
};

// A loss of 0 over no samples would look like the best possible score.
TEST_F(TrainerTest, AScoreOfNoSamplesIsRefused) {
  const ExitCode code = failure(
      2, config("run"), [](int, SmallTask& task, TrainerOptions&) { task.held_out = std::make_shared<NoSamples>(); });
  EXPECT_EQ(code, ExitCode::kBadData);
  EXPECT_THAT(failure_text_, HasSubstr("there are no samples for validation"));
}

TEST_F(TrainerTest, TheSameRunTwiceGivesTheSameBits) {
  Config first = config("a");
  first.train.precision = "fp32";
  Config second = first;
  second.run.dir = (root_ / "b").string();
  fit(3, first);
  fit(3, second);
  EXPECT_EQ(model("a"), model("b"));
  EXPECT_EQ(losses("a"), losses("b"));
}

TEST_F(TrainerTest, GoingOnIsBitwiseTheUninterruptedRun) {
  for (const char* name : {"adamw", "sgd"}) {
    const std::string whole = std::string("whole_") + name;
    const std::string parts = std::string("parts_") + name;
    Config config_whole = config(whole);
    config_whole.optim.rule.name = name;
    if (config_whole.optim.rule.name == "sgd") config_whole.optim.rule.set("momentum", "0.9");
    fit(2, config_whole);
    Config first = config_whole;
    first.run.dir = (root_ / parts).string();
    first.train.max_steps = 4;  // in the middle of the second epoch
    fit(2, first);
    Config second = first;
    second.train.max_steps = 0;
    second.run.resume = "true";
    const FitResult result = fit(2, second);
    EXPECT_EQ(result.steps, 9);
    EXPECT_THAT(output_, HasSubstr("going on after step 4"));
    EXPECT_EQ(losses(parts), losses(whole));
    EXPECT_EQ(model(parts), model(whole));
  }
}

TEST_F(TrainerTest, AWishToStopOnOneRankStopsAllAfterTheSameStep) {
  fit(3, config("whole"));
  const auto stop_at_second = [](int rank, SmallTask&, TrainerOptions& options) {
    auto asked = std::make_shared<int>(0);
    if (rank == 1) options.stop_requested = [asked] { return ++*asked == 2; };
  };
  const FitResult stopped = fit(3, config("parts"), stop_at_second);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.steps, 2);
  EXPECT_THAT(output_, HasSubstr("--run.resume true"));
  EXPECT_FALSE(fs::exists(root_ / "parts" / "model.safetensors"));
  Config rest = config("parts");
  rest.run.resume = "true";
  fit(3, rest);
  EXPECT_EQ(model("parts"), model("whole"));
  EXPECT_EQ(losses("parts"), losses("whole"));
}

// The validation has 511 samples, one at a time. A scheduler's signal during a long validation must have an effect
// before its end.
TEST_F(TrainerTest, AWishToStopBreaksOffTheValidationBetweenEpochs) {
  fit(2, config("whole"));
  const auto stop_in_validation = [](int rank, SmallTask& task, TrainerOptions& options) {
    task.samples_a_call = 1;
    if (rank == 1) options.stop_requested = [&task] { return task.validated > 0; };
  };
  const FitResult stopped = fit(2, config("parts"), stop_in_validation);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.steps, 3);  // the steps of the first epoch
  EXPECT_THAT(output_, HasSubstr("epoch 1/3: validation broken off"));
  Config rest = config("parts");
  rest.run.resume = "true";
  fit(2, rest);
  EXPECT_EQ(model("parts"), model("whole"));
  EXPECT_EQ(losses("parts"), losses("whole"));
}

TEST_F(TrainerTest, AFinishedRunGoesOnOnlyWhenAskedForMore) {
  fit(2, config("run"));
  const std::string before = model("run");
  Config again = config("run");
  again.run.resume = "true";
  const FitResult result = fit(2, again);
  EXPECT_TRUE(result.already_done);
  EXPECT_THAT(output_, HasSubstr("already finished"));
  EXPECT_EQ(model("run"), before);
  EXPECT_EQ(losses("run").size(), 9U);
  again.train.epochs = 4;
  fit(2, again);
  Config longer = config("longer");
  longer.train.epochs = 4;
  fit(2, longer);
  EXPECT_EQ(model("run"), model("longer"));
}

// A run that ended with fewer steps was resumed, and killed between its last checkpoint and its results.
TEST_F(TrainerTest, ResultsOfFewerStepsAreMadeAnew) {
  fit(2, config("run"));
  const std::string good = model("run");
  std::ofstream(root_ / "run" / "summary.json") << R"({"steps": 3})";
  std::ofstream(root_ / "run" / "model.safetensors") << "old";
  Config again = config("run");
  again.run.resume = "true";
  EXPECT_TRUE(fit(2, again).already_done);
  EXPECT_EQ(model("run"), good);
}

TEST_F(TrainerTest, NothingIsChangedWhereNothingIsToBeDone) {
  Config run = config("run");
  run.checkpoint.every_steps = 2;
  run.checkpoint.keep = 9;
  fit(1, run);
  const std::string before = model("run");
  run.run.resume = (root_ / "run" / "checkpoints" / "step_00000004").string();
  run.train.max_steps = 4;
  EXPECT_TRUE(fit(1, run).already_done);
  EXPECT_EQ(model("run"), before);
  EXPECT_EQ(losses("run").size(), 9U);
  EXPECT_TRUE(fs::exists(root_ / "run" / "checkpoints" / "step_00000008"));
}

TEST_F(TrainerTest, ADamagedCheckpointIsPassedOver) {
  Config run = config("run");
  run.checkpoint.every_steps = 2;
  run.checkpoint.keep = 3;
  run.train.max_steps = 6;
  fit(1, run);
  fit(1, config("whole"));
  const fs::path newest = root_ / "run" / "checkpoints" / "step_00000006" / "model.safetensors";
  fs::resize_file(newest, fs::file_size(newest) - 1);
  run.run.resume = "true";
  run.train.max_steps = 0;
  fit(1, run);
  EXPECT_THAT(output_, HasSubstr("passed over a damaged checkpoint"));
  EXPECT_THAT(output_, HasSubstr("going on after step 4"));
  EXPECT_EQ(model("run"), model("whole"));
  EXPECT_EQ(losses("run"), losses("whole"));
}

TEST_F(TrainerTest, AnOlderCheckpointGoesOnInANewDirectory) {
  Config run = config("run");
  run.checkpoint.every_steps = 3;
  run.checkpoint.keep = 5;
  fit(1, run);
  Config branch = config("branch");
  branch.run.resume = (root_ / "run" / "checkpoints" / "step_00000003").string();
  fit(1, branch);
  EXPECT_EQ(model("branch"), model("run"));
  branch.train.epochs = 4;
  branch.run.resume = "true";
  fit(1, branch);  // its metrics begin with step 4
  EXPECT_EQ(read_steps("branch"), (std::vector<std::int64_t>{4, 5, 6, 7, 8, 9, 10, 11, 12}));
  branch.run.resume = (root_ / "run").string();
  EXPECT_EQ(failure(1, branch), ExitCode::kOutputLocked);
  EXPECT_TRUE(fs::exists(root_ / "run" / "checkpoints" / "step_00000009"));
}

TEST_F(TrainerTest, AnOlderCheckpointGoesOnAndTheNewerOnesStayUntilTheFirstNewOne) {
  Config run = config("run");
  run.checkpoint.every_steps = 2;
  run.checkpoint.keep = 9;
  fit(1, run);
  const std::string whole = model("run");
  const auto all_losses = losses("run");
  const fs::path checkpoints = root_ / "run" / "checkpoints";
  const fs::path aside = checkpoints / "set_aside";
  const auto fails_in_step_6 = [](int, SmallTask& task, TrainerOptions&) {
    task.before_call = [](std::int64_t call) {
      if (call == 2) throw DataError("before anything was saved");
    };
  };
  run.run.resume = (checkpoints / "step_00000004").string();
  failure(1, run, fails_in_step_6);
  EXPECT_THAT(output_, HasSubstr("newer checkpoints (step_00000009, step_00000008, step_00000006) are moved to"));
  for (const char* name : {"step_00000006", "step_00000008", "step_00000009"}) {
    EXPECT_FALSE(fs::exists(checkpoints / name)) << name;
    EXPECT_NO_THROW(checkpoint::Checkpoint(aside / name).verify()) << name;
  }
  // The run goes back once more, and gives up step 4 in addition to the later steps.
  run.run.resume = (checkpoints / "step_00000002").string();
  failure(1, run, [](int, SmallTask& task, TrainerOptions&) {
    task.before_call = [](std::int64_t) { throw DataError("before anything was saved"); };
  });
  EXPECT_THAT(output_, HasSubstr("(step_00000004) are moved to"));
  const auto lines_of_future = [&](const char* name) {
    std::ifstream metrics(aside / name);
    int steps = 0;  // other lines are of validations
    for (std::string line; std::getline(metrics, line);) steps += line.find("\"loss\":") != std::string::npos ? 1 : 0;
    return steps;
  };
  EXPECT_EQ(lines_of_future("metrics_of_step_00000009.jsonl"), 9);
  EXPECT_EQ(lines_of_future("metrics_of_step_00000004.jsonl"), 5);

  run.run.resume = "true";
  failure(1, run, fails_in_step_6);
  EXPECT_THAT(output_, HasSubstr("going on after step 2"));
  EXPECT_TRUE(fs::exists(aside / "step_00000009"));
  EXPECT_THAT(output_, HasSubstr("checkpoints that this run gave up are in"));
  // The end at step 5 does not reach the later steps that the run gave up, so their checkpoints must remain.
  run.train.max_steps = 5;
  EXPECT_EQ(fit(1, run).steps, 5);
  EXPECT_FALSE(fs::exists(aside / "step_00000004")) << "which the run has come up with";
  EXPECT_TRUE(fs::exists(aside / "step_00000006"));
  run.train.max_steps = 0;
  EXPECT_EQ(fit(1, run).steps, 9);
  EXPECT_FALSE(fs::exists(aside));
  EXPECT_EQ(checkpoint::list(checkpoints).size(), 6U);  // of steps 2, 4, 5, 6, 8, 9
  EXPECT_EQ(model("run"), whole);
  EXPECT_EQ(losses("run"), all_losses);
}

TEST_F(TrainerTest, ARunThatIsStoppedGoesOnWithoutTheTraceThatFailed) {
  Config run = config("run");
  run.run.trace = "1:2";
  fs::create_directories(root_ / "run" / "trace.json");  // in the way
  const FitResult result = fit(1, run, [](int, SmallTask&, TrainerOptions& options) {
    options.stop_requested = [asked = 0]() mutable { return ++asked == 5; };
  });
  EXPECT_TRUE(result.stopped);
  EXPECT_THAT(output_, AllOf(HasSubstr("warning: trace.json is not written"), HasSubstr("go on with: ")));
}

TEST_F(TrainerTest, ADirectoryOfCheckpointsGoesOn) {
  fit(1, config("whole"));
  Config run = config("run");
  run.train.max_steps = 4;
  fit(1, run);
  run.train.max_steps = 0;
  // The directory is that of the run, which is resumed, or a copy elsewhere, with which a new run begins.
  fs::copy(root_ / "run" / "checkpoints", root_ / "elsewhere", fs::copy_options::recursive);
  run.run.dir = "";
  run.run.resume = (root_ / "run" / "checkpoints").string();
  EXPECT_EQ(fit(1, run).steps, 9);
  EXPECT_EQ(model("run"), model("whole"));
  run.run.dir = (root_ / "new").string();
  run.run.resume = (root_ / "elsewhere").string();
  EXPECT_EQ(fit(1, run).steps, 9);
  EXPECT_EQ(model("new"), model("whole"));
}

TEST_F(TrainerTest, ARunThatEndedDoesNotBeginAnewWithoutItsCheckpoints) {
  fit(1, config("run"));
  const std::string before = model("run");
  fs::remove_all(root_ / "run" / "checkpoints");
  Config again = config("run");
  again.run.resume = "true";
  EXPECT_EQ(failure(1, again), ExitCode::kInputMissing);
  EXPECT_THAT(failure_text_, HasSubstr("holds a run that has ended, and no checkpoint of it"));
  EXPECT_EQ(model("run"), before);
  EXPECT_EQ(losses("run").size(), 9U);
}

TEST_F(TrainerTest, AnotherRunsCheckpointIsRefused) {
  fit(1, config("run"));
  Config other = config("run");
  other.run.resume = "true";
  other.train.epochs = 5;
  other.train.seed = 1;
  EXPECT_EQ(failure(2, other), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("train.seed differs"));
  other.train.seed = 0;
  other.train.global_batch = 96;
  EXPECT_EQ(failure(1, other), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("train.global_batch differs"));
  other.train.global_batch.reset();  // the value of the checkpoint
  other.optim.lr = 0.02;
  fit(1, other);
  EXPECT_THAT(output_, HasSubstr("optim.lr is 0.02 from here on; it was 0.01"));
}

TEST_F(TrainerTest, OptionsOfTheModelMayNotChangeExceptItsKernelsAndNewOnes) {
  Config first = config("run");
  first.model.options = {{"dim", 4, "width"}, {.key = "kernels", .value = std::string("auto")}};
  fit(1, first);
  Config other = first;
  other.run.resume = "true";
  other.train.epochs = 5;
  other.model.options[0].value = std::int64_t{5};
  EXPECT_EQ(failure(1, other), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("model.dim differs"));
  other.model.options[0].value = std::int64_t{4};
  other.model.options[1].value = std::string("torch");
  other.model.options.push_back({"layers", 2, "of a newer version"});
  fit(1, other);
  EXPECT_THAT(output_, HasSubstr("model.kernels is torch from here on; it was auto"));
  EXPECT_THAT(output_, HasSubstr("model.layers is 2; the run began without this option"));
  other.train.epochs = 6;
  other.model.options.back().key = "depth";
  EXPECT_EQ(failure(1, other), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("model.depth differs"));
  other.model.options.pop_back();
  fit(1, other);
  EXPECT_THAT(output_, HasSubstr("the run began with model.layers = 2, an option that is no more"));
  other.model.options.back().value = std::string("of mine");
  EXPECT_EQ(failure(1, other), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("model.kernels differs"));
}

TEST_F(TrainerTest, ALossThatIsNoNumberStopsAllRanksAndIsNotSaved) {
  Config run = config("run");
  run.checkpoint.every_steps = 1;
  const auto poison = [](int rank, SmallTask& task, TrainerOptions&) {
    if (rank == 1) task.poison_call = 3;
  };
  EXPECT_EQ(failure(2, run, poison), ExitCode::kNotANumber);
  EXPECT_THAT(failure_text_,
              AllOf(HasSubstr("the loss of step 3 is not a finite number"), HasSubstr("; rank 1: loss nan")));
  EXPECT_EQ(losses("run").size(), 2U);
  EXPECT_TRUE(fs::exists(root_ / "run" / "checkpoints" / "step_00000002"));
  EXPECT_FALSE(fs::exists(root_ / "run" / "checkpoints" / "step_00000003"));
}

TEST_F(TrainerTest, WeightsThatAreNoNumbersAreNotSaved) {
  Config run = config("run");
  run.optim.rule.name = "sgd";
  run.optim.lr = 1e300;
  run.optim.weight_decay = 1e300;
  run.train.max_steps = 1;
  EXPECT_EQ(failure(2, run), ExitCode::kNotANumber);
  EXPECT_FALSE(fs::exists(root_ / "run" / "checkpoints"));
}

TEST_F(TrainerTest, ADirectoryThatHoldsARunIsRefused) {
  fit(1, config("run"));
  EXPECT_EQ(failure(2, config("run")), ExitCode::kOutputLocked);
  EXPECT_THAT(failure_text_, HasSubstr("holds a run already"));
}

TEST_F(TrainerTest, ADirectoryThatCannotBeMadeIsRefusedBeforeAnyWork) {
  Config run = config("run");
  std::ofstream(root_ / "file") << "in the way";
  run.run.dir = (root_ / "file" / "run").string();
  EXPECT_EQ(failure(2, run), ExitCode::kIo);
  run.run.dir = "/proc/run";
  EXPECT_EQ(failure(1, run), ExitCode::kIo);
}

TEST_F(TrainerTest, ResumingNothingIsAMissingInput) {
  Config run = config("absent");
  run.run.resume = "true";
  EXPECT_EQ(failure(2, run), ExitCode::kInputMissing);
  run.run.dir.clear();
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  run.run.resume = (root_ / "absent").string();
  EXPECT_EQ(failure(1, run), ExitCode::kInputMissing);
}

TEST_F(TrainerTest, ResumingARunWithoutACheckpointSaysThatItStartsAnew) {
  Config run = config("run");
  fs::create_directories(root_ / "run" / "checkpoints");
  run.run.resume = "true";
  fit(2, run);
  EXPECT_THAT(output_, HasSubstr("no checkpoint in " + run.run.dir + ": starting at step 1\n"));
}

TEST_F(TrainerTest, RanksWithDifferentOptionsAreRefused) {
  const auto differ = [](int rank, SmallTask&, TrainerOptions& options) {
    if (rank == 2) options.config.optim.lr = 0.02;
  };
  EXPECT_EQ(failure(3, config("run"), differ), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("different configurations: optim.lr"));
  EXPECT_THAT(failure_text_, HasSubstr("0.02\" on rank 2"));
  EXPECT_FALSE(fs::exists(root_ / "run"));
}

TEST_F(TrainerTest, FilesOfARunTellWhatHappened) {
  Config run = config("run");
  run.run.save_initial = true;
  run.data.dump_order = (root_ / "order.txt").string();
  run.train.max_steps = 4;
  fit(2, run);
  EXPECT_THAT(output_, HasSubstr(", 195 samples, global batch 97, "));
  EXPECT_THAT(output_, HasSubstr("test accuracy"));
  EXPECT_THAT(output_, HasSubstr("exposed communication"));
  const auto json = summary("run");
  EXPECT_EQ(json["steps"], 4);
  EXPECT_EQ(json["world_size"], 2);
  EXPECT_EQ(json["global_batch"], 97);
  EXPECT_GT(json["samples_per_s"], 0);
  EXPECT_GT(json["peak_rss_bytes"], 1 << 20);
  EXPECT_EQ(json["peak_rss_bytes_by_rank"].size(), 2U);
  EXPECT_GT(json["wall_s"], 0);
  EXPECT_GT(json["test_loss"], 0);

  // Initial weights are a function of the seed.
  SmallNet fresh;
  fresh.to(at::kDouble);
  nn::initialize(fresh, 0);
  for (const auto& item : tensor::read_tensors(root_ / "run" / "initial.safetensors")) {
    EXPECT_TRUE(at::equal(item.tensor, *fresh.named_parameters().find(item.name))) << item.name;
  }

  // For any number of ranks, the order is that of the sampler, with each sample of an epoch once.
  std::ifstream in(root_ / "order.txt");
  std::vector<std::vector<std::int64_t>> lines;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    lines.emplace_back(std::istream_iterator<std::int64_t>(words), std::istream_iterator<std::int64_t>());
  }
  ASSERT_EQ(lines.size(), 4U);
  std::vector<std::int64_t> epoch;
  for (std::size_t i = 0; i < 3; ++i) epoch.insert(epoch.end(), lines[i].begin(), lines[i].end());
  const data::Order order = data::Sampler({.size = 195, .global_batch = 97, .shuffle = true, .seed = 0}).order(0);
  ASSERT_EQ(epoch.size(), 195U);
  for (std::size_t i = 0; i < epoch.size(); ++i) EXPECT_EQ(epoch[i], order[static_cast<std::int64_t>(i)]);

  // A resumed run writes the lines of earlier steps as well.
  const std::string so_far = read_file(root_ / "order.txt");
  fs::remove(root_ / "order.txt");
  run.run.resume = "true";
  run.train.max_steps = 5;
  fit(1, run);
  EXPECT_EQ(read_file(root_ / "order.txt").substr(0, so_far.size()), so_far);

  EXPECT_THAT(read_file(root_ / "run" / "config.toml"), HasSubstr("global_batch = 97"));
}

TEST_F(TrainerTest, SpeedStepsAndEpochsAreThoseThatWereMade) {
  Config run = config("run");
  run.train.max_steps = 2;
  fit(1, run);
  EXPECT_THAT(output_, HasSubstr("epoch 1/1  step 2/2"));
  EXPECT_THAT(output_, HasSubstr("small: 2 steps of 97 samples on 1 rank"));
  run.run.resume = "true";
  run.train.max_steps = 5;
  fit(1, run);
  EXPECT_THAT(output_, HasSubstr("epoch 2/2  step 5/5"));
  EXPECT_THAT(output_, HasSubstr("small: 3 steps (3 to 5) of 97 samples on 1 rank"));

  Config one = config("one");
  one.data.limit = 1;
  const FitResult result = fit(1, one);
  EXPECT_THAT(output_, HasSubstr("small: 3 steps of 1 sample on"));
  double fastest = 0;
  for (const auto& line : lines_of(root_ / "one")) fastest = std::max(fastest, line["samples_per_s"].get<double>());
  EXPECT_LE(result.samples_per_s, 1.01 * fastest);
}

TEST_F(TrainerTest, ARunThatIsVerifiedFirstIsTheSameRun) {
  fit(3, config("plain"));
  Config verified = config("verified");
  verified.train.verify = 2;
  fit(3, verified);
  EXPECT_THAT(
      output_,
      HasSubstr(
          "verified on 3 ranks with 97 samples (plain data parallelism, without shards): the same after 2 steps"));
  EXPECT_EQ(losses("verified"), losses("plain"));
  EXPECT_EQ(model("verified"), model("plain"));
}

TEST_F(TrainerTest, WhatIsVerifiedIsPlainAndInFp32AndSaysSo) {
  Config run = config("sixteen");
  run.train.verify = 3;
  run.train.precision = "bf16";
  run.parallel.shard = "none";
  run.parallel.strategy = parallel::LocalSgdOptions{};
  fit(2, run);
  EXPECT_THAT(output_, HasSubstr("(plain data parallelism, in fp32 instead of train.precision bf16, "
                                 "without parallel.strategy local_sgd): the same after 3 steps"));
  Config shared = config("shared");
  shared.train.verify = 1;
  shared.parallel.shard = "gradients";
  fit(2, shared);
  EXPECT_THAT(output_, HasSubstr("(plain data parallelism, without shards): the same"));
}

TEST_F(TrainerTest, AModelThatIsNotTheSameInParallelIsNotTrained) {
  Config verified = config("run");
  verified.train.verify = 2;
  // The first two calls are those of the training alone.
  const auto poison = [](int rank, SmallTask& task, TrainerOptions&) {
    if (rank == 1) task.poison_gradient_call = 3;
  };
  EXPECT_EQ(failure(2, verified, poison), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, ::testing::AllOf(HasSubstr("does not train in parallel as it does alone"),
                                              HasSubstr("step 1: the gradient of fc1"), HasSubstr("train.verify")));
}

TEST_F(TrainerTest, ALabelThatIsNoClassNamesItsSample) {
  const auto with_label = [](std::int64_t sample, std::int64_t label) {
    const data::DatasetPtr whole = made_data(195, at::kDouble, "train");
    std::vector<std::int64_t> all(195);
    std::iota(all.begin(), all.end(), 0);
    const data::Samples samples = whole->gather(all);
    samples.target[sample] = label;
    return data::in_memory(samples.input, samples.target, "train");
  };
  for (const int ranks : {1, 3}) {
    EXPECT_EQ(failure(ranks, config("a"), [&](int, SmallTask& task, auto&) { task.data = with_label(151, 4); }),
              ExitCode::kBadData);
    EXPECT_THAT(failure_text_, AllOf(HasSubstr("the label of sample 151 of the training data is outside"),
                                     HasSubstr("got: 4"), HasSubstr("label_offset")));
    EXPECT_EQ(failure(ranks, config("b"), [&](int, SmallTask& task, auto&) { task.held_out = with_label(77, -3); }),
              ExitCode::kBadData);
    EXPECT_THAT(failure_text_, AllOf(HasSubstr("the label of sample 77 of the data that are evaluated is outside"),
                                     HasSubstr("got: -3")));
    fs::remove_all(root_ / "a");
    fs::remove_all(root_ / "b");
  }
}

TEST_F(TrainerTest, AnErrorOfOneRankIsEverybodysError) {
  Config run = config("run");
  run.data.dump_order = (root_ / "absent" / "order.txt").string();
  EXPECT_EQ(failure(3, run), ExitCode::kIo);
  EXPECT_THAT(failure_text_, HasSubstr("order.txt"));
  EXPECT_FALSE(fs::exists(run.run.dir));
}

}  // namespace
}  // namespace reigen::train
