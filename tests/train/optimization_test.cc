// The options of section optim. Runs with every optimizer are resumed with the same bits. Schedules, clipping and
// averages have their effect on the files of a run.
#include "train/optimizer/optimization.h"

#include <cmath>

#include "reigen/checkpoint/convert.h"
#include "reigen/optim/schedule.h"
#include "reigen/tensor/tensor_files.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

TEST_F(TrainerTest, EveryOptimizerGoesOnBitwiseWithAllItsState) {
  for (const char* name : {"adam", "adagrad", "rmsprop", "lion", "lars", "lamb", "sgd", "adamw"}) {
    Config whole = config(std::string("whole_") + name);
    whole.train.precision = "fp32";
    whole.train.clip_norm = 0.5;
    whole.optim.rule.name = name;
    whole.optim.no_decay = "@vectors";
    whole.optim.lr_factors = "fc2.*=0.5";
    whole.optim.schedule.name = "cosine";
    whole.optim.warmup_steps = 2;
    whole.optim.ema_decay = 0.9;
    const std::string kind = name;
    if (kind == "sgd" || kind == "rmsprop") whole.optim.rule.set("momentum", "0.9");
    if (kind == "rmsprop") whole.optim.rule.set("centered", "true");
    if (kind == "lion" || kind == "adamw") whole.optim.rule.set("bf16_states", "true");
    fit(2, whole);
    Config parts = whole;
    parts.run.dir = (root_ / (std::string("parts_") + name)).string();
    const auto stop_at_fourth = [](int rank, SmallTask&, TrainerOptions& options) {
      auto asked = std::make_shared<int>(0);
      if (rank == 1) options.stop_requested = [asked] { return ++*asked == 4; };
    };
    EXPECT_TRUE(fit(2, parts, stop_at_fourth).stopped);
    parts.run.resume = "true";
    EXPECT_EQ(fit(2, parts).steps, 9) << output_;
    EXPECT_EQ(losses(parts.run.dir), losses(whole.run.dir)) << name;
    EXPECT_EQ(model(parts.run.dir), model(whole.run.dir)) << name;
    EXPECT_EQ(read_file(fs::path(parts.run.dir) / "model_ema.safetensors"),
              read_file(fs::path(whole.run.dir) / "model_ema.safetensors"))
        << name;
    EXPECT_NE(model(whole.run.dir), read_file(fs::path(whole.run.dir) / "model_ema.safetensors")) << name;
  }
}

TEST_F(TrainerTest, ClippingGivesTheSameModelOnEveryNumberOfRanksAndIsTold) {
  for (const char* name : {"lamb", "sgd"}) {
    const auto run = [&](int ranks) {
      Config one = config(std::string(name) + std::to_string(ranks));
      one.optim.rule.name = name;
      if (one.optim.rule.name == "sgd") one.optim.rule.set("momentum", "0.9");
      one.train.clip_norm = 0.1;
      one.train.clip_value = 0.05;
      fit(ranks, one);
      return one.run.dir;
    };
    const std::string alone = run(1);
    const auto expected = lines_of(alone);
    const auto weights = tensor::read_tensors(fs::path(alone) / "model.safetensors");
    ASSERT_EQ(expected.size(), 9U);
    EXPECT_GT(expected[0]["grad_norm"].get<double>(), 0.1) << "there is something to clip";
    for (const int ranks : {2, 3}) {
      const std::string directory = run(ranks);
      const auto got = lines_of(directory);
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i]["grad_norm"].get<double>(), expected[i]["grad_norm"].get<double>(), 1e-9);
        EXPECT_NEAR(got[i]["loss"].get<double>(), expected[i]["loss"].get<double>(), 1e-9);
      }
      const auto others = tensor::read_tensors(fs::path(directory) / "model.safetensors");
      for (std::size_t i = 0; i < weights.size(); ++i) {
        EXPECT_LE((weights[i].tensor - others[i].tensor).abs().max().item<double>(), 1e-9) << weights[i].name;
      }
    }
  }
}

TEST_F(TrainerTest, TheNormIsToldWhereItWasTaken) {
  for (const auto& [shard, told] : {std::pair("none", true), std::pair("gradients", false)}) {
    Config run = config(shard);
    run.parallel.shard = shard;
    fit(2, run);
    for (const auto& line : lines_of(root_ / shard)) EXPECT_EQ(line.contains("grad_norm"), told);
  }
}

TEST_F(TrainerTest, TheLearningRateFollowsItsScheduleAndItsBatch) {
  Config run = config("run");
  run.optim.schedule.name = "polynomial";
  run.optim.warmup_steps = 3;
  run.optim.schedule.set("min_lr_factor", "0.1");
  run.optim.lr_scaling = "sqrt";
  run.optim.base_batch = 97 * 4;
  fit(1, run);
  const auto lines = lines_of(root_ / "run");
  ASSERT_EQ(lines.size(), 9U);
  for (std::int64_t step = 0; step < 9; ++step) {
    const double expected = optim::scheduled_lr(
        0.005, step, {.kind = optim::Schedule::kPolynomial, .warmup_steps = 3, .total_steps = 9, .min_factor = 0.1});
    EXPECT_DOUBLE_EQ(lines[static_cast<std::size_t>(step)]["lr"].get<double>(), expected) << step;
  }
}

TEST_F(TrainerTest, TheAverageIsValidatedAndSavedBesideTheModel) {
  Config run = config("run");
  run.optim.ema_decay = 0.5;
  fit(2, run);
  Config plain = config("plain");
  fit(2, plain);
  EXPECT_EQ(model("run"), model("plain")) << "the average changes nothing of the training";
  EXPECT_NE(summary("run")["test_loss"], summary("plain")["test_loss"]);
  EXPECT_FALSE(fs::exists(root_ / "plain" / "model_ema.safetensors"));

  checkpoint::write_whole(checkpoint::Weights::averages_of(root_ / "run"), root_ / "saved.safetensors");
  EXPECT_EQ(read_file(root_ / "saved.safetensors"), read_file(root_ / "run" / "model_ema.safetensors"));
  EXPECT_THROW(checkpoint::Weights::averages_of(root_ / "plain"), DataError);

  SmallTask task(run);
  auto parameters = task.module().named_parameters();
  for (const auto& item : tensor::read_tensors(root_ / "run" / "model_ema.safetensors")) {
    parameters[item.name].set_data(item.tensor);
  }
  run.run.dir = (root_ / "again").string();
  Figures figures;
  run_threads(1, [&](Communicator& world) { figures = Trainer(task, world, {.config = run}).validate(); });
  EXPECT_NEAR(figures.at("test_loss"), summary("run")["test_loss"].get<double>(), 1e-6);
}

TEST_F(TrainerTest, AnAverageMayBeginOrEndWhereARunGoesOn) {
  Config run = config("run");
  run.train.max_steps = 3;
  fit(1, run);
  run.run.resume = "true";
  run.train.max_steps = 6;
  run.optim.ema_decay = 0.9;
  fit(1, run);
  EXPECT_THAT(output_, HasSubstr("optim.ema_decay is 0.9 from here on; it was 0"));
  EXPECT_TRUE(fs::exists(root_ / "run" / "model_ema.safetensors"));
  run.train.max_steps = 0;
  run.optim.ema_decay = 0;
  EXPECT_EQ(fit(1, run).steps, 9);
  fit(1, config("whole"));
  EXPECT_EQ(model("run"), model("whole"));
}

// The parameters: shard and backend.
class BlamedRanks : public TrainerTest, public testing::WithParamInterface<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Train, BlamedRanks,
                         testing::Values(std::pair("none", "auto"), std::pair("optimizer", "auto"),
                                         std::pair("gradients", "auto"), std::pair("parameters", "auto"),
                                         std::pair("optimizer", "tcp"), std::pair("gradients", "tcp"),
                                         std::pair("parameters", "tcp")));

TEST_P(BlamedRanks, AGradientThatIsNoNumberChangesNoWeight) {
  Config run = config("run");
  run.parallel.shard = GetParam().first;
  backend_ = GetParam().second;
  run.train.clip_norm = 1;
  run.checkpoint.every_steps = 1;
  const auto poison = [](bool lasts) {
    return [lasts](int rank, SmallTask& task, TrainerOptions&) {
      if (rank != 1) return;
      task.poison_gradient_call = 3;
      task.poison_lasts = lasts;
    };
  };
  EXPECT_EQ(failure(2, run, poison(true)), ExitCode::kNotANumber);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("the gradient norm of step 3 is not a finite number"),
                                   HasSubstr("; rank 1: gradient of fc2.bias"), Not(HasSubstr("rank 0:"))));
  EXPECT_TRUE(fs::exists(root_ / "run" / "checkpoints" / "step_00000002"));
  EXPECT_FALSE(fs::exists(root_ / "run" / "checkpoints" / "step_00000003"));
  run.run.dir = (root_ / "again").string();
  EXPECT_EQ(failure(2, run, poison(false)), ExitCode::kNotANumber);
  EXPECT_THAT(failure_text_, HasSubstr("gradient of fc2.bias, on no rank by itself when the step is computed again"));
  // The same without clipping.
  Config plain = config("plain");
  plain.parallel.shard = GetParam().first;
  EXPECT_EQ(failure(2, plain, poison(true)), ExitCode::kNotANumber);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("the gradient norm of step 3 is not a finite number"),
                                   HasSubstr("; rank 1: gradient of fc2.bias"), Not(HasSubstr("rank 0:"))));
}

TEST_F(TrainerTest, PatternsThatMatchNothingAreRefusedOnEveryRank) {
  Config run = config("run");
  run.optim.no_decay = "fc1.bias, norm*";
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("optim.no_decay: norm* is the name of no parameter"));
  EXPECT_THAT(failure_text_, HasSubstr("fc1.weight"));
}

TEST_F(TrainerTest, AStateOfAnotherKindIsRefused) {
  Config run = config("run");
  run.train.precision = "fp32";
  run.train.max_steps = 2;
  fit(1, run);
  run.run.resume = "true";
  run.train.max_steps = 4;
  Config other = run;
  other.optim.rule.set("bf16_states", "true");
  EXPECT_EQ(failure(1, other), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("optim.bf16_states differs"));
  run.optim.schedule.name = "cosine";
  fit(1, run);
  EXPECT_THAT(output_, HasSubstr("optim.schedule is cosine from here on"));
  EXPECT_THAT(output_, HasSubstr("train.max_steps is 4 from here on; it was 2"));
}

}  // namespace
}  // namespace reigen::train
