// train.not_finite: a step whose loss or gradient is not finite ends the run, is skipped on all ranks, or makes them go
// back to a checkpoint.
#include <cmath>
#include <utility>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/tensor/pieces.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

constexpr std::int64_t kCall = 5;  // the run has 9 steps

// Makes the gradient or the loss of rank 1 not finite in call kCall.
auto poison(bool gradient, bool lasts = false) {
  return [=](int rank, SmallTask& task, TrainerOptions&) {
    if (rank != 1) return;
    (gradient ? task.poison_gradient_call : task.poison_call) = kCall;
    task.poison_lasts = lasts;
  };
}

// The parameters: shard and backend.
class NotFiniteTest : public TrainerTest, public testing::WithParamInterface<std::pair<const char*, const char*>> {
 protected:
  Config policy(const char* directory, const char* what) const {
    Config run = config(directory);
    run.parallel.shard = GetParam().first;
    run.train.not_finite = what;
    run.checkpoint.every_steps = 2;
    run.checkpoint.keep = 9;
    return run;
  }
  std::vector<nlohmann::json> lines(const char* directory) const { return lines_of(root_ / directory); }
};

INSTANTIATE_TEST_SUITE_P(Train, NotFiniteTest,
                         testing::Values(std::pair("none", "auto"), std::pair("optimizer", "auto"),
                                         std::pair("gradients", "auto"), std::pair("parameters", "auto"),
                                         std::pair("optimizer", "tcp"), std::pair("gradients", "tcp"),
                                         std::pair("parameters", "tcp")));

TEST_P(NotFiniteTest, AStepIsSkippedOnAllRanksAndToldOnce) {
  backend_ = GetParam().second;
  Config clean = policy("clean", "skip");
  fit(2, clean);
  for (const bool gradient : {true, false}) {
    const char* name = gradient ? "gradient" : "loss";
    Config run = policy(name, "skip");
    run.checkpoint.every_steps = 1;
    EXPECT_EQ(fit(2, run, poison(gradient)).steps, 9);
    EXPECT_THAT(output_, AllOf(HasSubstr("warning: the"), HasSubstr("of step 5 is not a finite number"),
                               HasSubstr("; skipped")));
    const auto told = lines(name);
    ASSERT_EQ(told.size(), 9U);
    for (std::size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i].contains("skipped"), i + 1 == kCall) << i;
    EXPECT_EQ(told[kCall - 1]["loss"].is_null(), !gradient);
    const auto weights = [&](std::int64_t step) {
      const checkpoint::Checkpoint saved(root_ / name / "checkpoints" / checkpoint::name_of(step));
      return tensor::read_group(saved, "model");
    };
    const auto changed = [&](std::int64_t step) {
      const auto before = weights(step - 1);
      const auto behind = weights(step);
      int count = 0;
      for (std::size_t i = 0; i < before.size(); ++i) count += before[i].tensor.equal(behind[i].tensor) ? 0 : 1;
      return count;
    };
    EXPECT_EQ(changed(kCall), 0);
    EXPECT_EQ(changed(kCall + 1), 4);
    EXPECT_EQ(lines("clean")[kCall - 2]["loss"], told[kCall - 2]["loss"]);
    EXPECT_NE(lines("clean")[8]["loss"], told[8]["loss"]);
  }
  EXPECT_TRUE(model("gradient") == model("loss"));
}

TEST_P(NotFiniteTest, ARollbackGivesWhatASkipWouldHaveGiven) {
  backend_ = GetParam().second;
  fit(2, policy("skipped", "skip"), poison(true));
  for (const bool asynchronous : {false, true}) {
    const char* name = asynchronous ? "asynchronous" : "back";
    Config run = policy(name, "rollback");
    run.checkpoint.every_steps = 3;  // the run goes back over steps 4 and 5
    run.checkpoint.asynchronous = asynchronous;
    EXPECT_EQ(fit(2, run, poison(true)).steps, 9);
    EXPECT_THAT(output_,
                AllOf(HasSubstr("of step 5 is not a finite number"),
                      HasSubstr("step_00000003, that batch will be left out"), HasSubstr("going on after step 3")));
    EXPECT_TRUE(model(name) == model("skipped"));
    const auto told = lines(name);
    const auto expected = lines("skipped");
    ASSERT_EQ(told.size(), 9U);
    for (std::size_t i = 0; i < told.size(); ++i) {
      EXPECT_EQ(told[i]["step"], i + 1);
      EXPECT_EQ(told[i].contains("skipped"), i + 1 == kCall);
      if (i + 1 != kCall) {
        EXPECT_EQ(told[i]["loss"], expected[i]["loss"]) << i;
      }
    }
  }
}

TEST_P(NotFiniteTest, ARollbackGoesIntoTheCheckpointOfAnotherDirectory) {
  backend_ = GetParam().second;
  Config first = policy("first", "rollback");
  first.train.max_steps = 3;
  fit(2, first);
  Config second = policy("second", "rollback");
  second.checkpoint.every_steps = 100;
  second.run.resume = (root_ / "first").string();
  EXPECT_EQ(fit(2, second, poison(true)).steps, 9);
  EXPECT_THAT(output_, AllOf(HasSubstr("of step 8 is not a finite number"), HasSubstr("that batch will be left out")));
  const auto told = lines("second");
  ASSERT_EQ(told.size(), 6U);
  for (std::size_t i = 0; i < told.size(); ++i) EXPECT_EQ(told[i]["step"], i + 4);
}

TEST_P(NotFiniteTest, WhatLastsEndsTheRun) {
  backend_ = GetParam().second;
  Config skips = policy("skips", "skip");
  skips.train.epochs = 6;
  EXPECT_EQ(failure(2, skips, poison(true, true)), ExitCode::kNotANumber);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("of step 15 is"), HasSubstr("the 10 steps before it were skipped"),
                                   HasSubstr("rank 1: gradient of fc2.bias")));
  EXPECT_EQ(failure(2, policy("back", "rollback"), poison(true, true)), ExitCode::kNotANumber);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("of step 8 is"), HasSubstr("3 rollbacks before it did not help")));
  for (const ExitCode code : codes_) EXPECT_EQ(code, ExitCode::kNotANumber);
}

TEST_P(NotFiniteTest, BuffersOfASkippedStepAreThoseBeforeIt) {
  backend_ = GetParam().second;
  for (const char* poisoned : {"loss", "buffer too"}) {
    fit(2, policy(poisoned, "skip"), [&](int rank, SmallTask& task, TrainerOptions&) {
      if (rank == 1) task.poison_call = kCall;
      const at::Tensor seen = task.module().register_buffer("seen", at::zeros({2}));
      task.before_call = [=, is_bad = std::string(poisoned) != "loss"](std::int64_t call) {
        if (!at::GradMode::is_enabled()) return;  // validation
        seen.add_(1);
        if (is_bad && call == kCall) seen.resize_({3}).fill_(NAN);
      };
    });
    const auto found = checkpoint::find_newest(root_ / poisoned / "checkpoints");
    for (const auto& item : tensor::read_group(*found.newest, "model")) {
      if (item.name == "seen") {
        EXPECT_TRUE(item.tensor.equal(at::full({2}, 8.0F))) << poisoned << item.tensor;
      }
    }
  }
}

TEST_P(NotFiniteTest, AStateThatIsNoneIsNotSaved) {
  backend_ = GetParam().second;
  Config run = policy("buffer", "stop");
  const auto with_buffer = [](float value) {
    return [=](int, SmallTask& task, TrainerOptions&) {
      const at::Tensor mask = task.module().register_buffer("mask", at::zeros({2}));
      task.before_call = [=](std::int64_t) { mask.fill_(value); };
    };
  };
  EXPECT_EQ(failure(2, run, with_buffer(NAN)), ExitCode::kNotANumber);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("the state after step 2 is not finite"), HasSubstr("NaN in model mask")));
  run.run.dir = (root_ / "mask").string();
  EXPECT_EQ(fit(2, run, with_buffer(-INFINITY)).steps, 9);
  run.run.dir = (root_ / "on purpose").string();
  const auto with_nan = [](int, SmallTask& task, TrainerOptions&) {
    task.module().register_buffer("mask", at::full({2}, NAN));
  };
  EXPECT_EQ(fit(2, run, with_nan).steps, 9);

  // The gradient is finite, but its square is not, and the weight does not change.
  run.run.dir = (root_ / "state").string();
  run.train.precision = "fp32";
  EXPECT_EQ(failure(2, run,
                    [](int, SmallTask& task, TrainerOptions&) {
                      task.poison_gradient_call = kCall;
                      task.poison_gradient_by = 1e25;
                    }),
            ExitCode::kNotANumber);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("the state after step 6"), HasSubstr("infinity in optimizer fc")));
  EXPECT_EQ(checkpoint::find_newest(root_ / "state" / "checkpoints").newest->manifest().step, 4);
}

TEST_F(TrainerTest, ThereMustBeAWayBack) {
  Config run = config("run");
  run.train.not_finite = "rollback";
  run.checkpoint.every_steps = 100;
  EXPECT_EQ(failure(2, run, poison(true)), ExitCode::kNotANumber);
  EXPECT_THAT(failure_text_, HasSubstr("there is no checkpoint yet to go back to"));
  run.checkpoint.every_steps = 0;
  run.run.dir = (root_ / "never").string();
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("train.not_finite rollback needs checkpoint.every"));
  run.train.not_finite = "skip";
  run.parallel.strategy = parallel::PowerSgdOptions{};
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("train.not_finite skip and parallel.strategy power_sgd do not go together"));
}

// A run after a rollback can be stopped and resumed, and config.toml has the options of its start.
TEST_F(TrainerTest, ARunThatWentBackGoesOnLikeAnyOther) {
  Config run = config("run");
  run.train.not_finite = "rollback";
  run.checkpoint.every_steps = 2;
  run.train.max_steps = 7;
  fit(2, run, poison(false));
  EXPECT_EQ(lines_of(root_ / "run").size(), 7U);
  EXPECT_THAT(read_file(root_ / "run" / "config.toml"), HasSubstr("not_finite = \"rollback\""));
  EXPECT_THAT(read_file(root_ / "run" / "config.toml"), HasSubstr("resume = \"\""));
  run.run.resume = "true";
  run.train.max_steps = 0;
  EXPECT_EQ(fit(2, run).steps, 9);
  EXPECT_EQ(lines_of(root_ / "run").size(), 9U);
}

}  // namespace
}  // namespace reigen::train
