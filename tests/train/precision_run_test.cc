// Runs that compute in 16 bits, and runs that demand deterministic operators.
#include <ATen/Context.h>

#include "train/run/failure.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

class PrecisionRun : public TrainerTest {
 protected:
  Config with(const std::string& precision, const std::string& directory) const {
    Config result = config(directory);
    result.train.precision = precision;
    return result;
  }
};

TEST_F(PrecisionRun, LearnsAsInFp32) {
  Config exact = with("fp32", "fp32");
  exact.train.epochs = 20;
  fit(2, exact);
  for (const char* precision : {"bf16", "fp16"}) {
    Config narrow = with(precision, precision);
    narrow.train.epochs = 20;
    fit(2, narrow);
    EXPECT_NE(losses(precision), losses("fp32"));
    // Step 59 has the last whole batch. Step 60 has a single sample.
    EXPECT_NEAR(losses(precision)[58], losses("fp32")[58], 0.02);
    EXPECT_NEAR(summary(precision)["test_accuracy"], summary("fp32")["test_accuracy"].get<double>(), 0.02);
    EXPECT_EQ(summary(precision)["precision"], precision);
  }
}

// The loss scale is resumed too.
TEST_F(PrecisionRun, GoingOnIsBitwiseTheUninterruptedRun) {
  for (const std::string precision : {"bf16", "fp16"}) {
    const auto poison = [](int calls_before) {
      return [calls_before](int rank, SmallTask& task, TrainerOptions&) {
        if (rank == 1) task.poison_gradient_call = 3 - calls_before;
      };
    };
    const bool scaled = precision == "fp16";  // only fp16 merely skips a step with an infinite gradient
    fit(2, with(precision, "whole_" + precision), scaled ? poison(0) : Prepare());
    Config first = with(precision, "parts_" + precision);
    first.train.max_steps = 4;
    fit(2, first, scaled ? poison(0) : Prepare());
    Config second = first;
    second.train.max_steps = 0;
    second.run.resume = "true";
    fit(2, second);
    EXPECT_EQ(losses("parts_" + precision), losses("whole_" + precision));
    EXPECT_EQ(model("parts_" + precision), model("whole_" + precision));
  }
}

// Matrices are bf16 in the model and its file, and fp32 in the state of the optimizer.
TEST_F(PrecisionRun, Bf16WeightsHaveFp32MastersAndGoOnBitwise) {
  const auto narrow = [&](const std::string& directory) {
    Config run = with("bf16", directory);
    run.train.weights = "bf16";
    run.train.epochs = 20;
    return run;
  };
  Config wide = with("bf16", "wide");
  wide.train.epochs = 20;
  fit(1, wide);
  fit(1, narrow("whole"));
  EXPECT_NE(losses("whole"), losses("wide"));
  EXPECT_NEAR(losses("whole")[58], losses("wide")[58], 0.02);
  EXPECT_THAT(model("whole"),
              AllOf(HasSubstr(R"("fc1.weight":{"dtype":"BF16")"), HasSubstr(R"("fc1.bias":{"dtype":"F32")")));
  for (const char* shard : {"none", "parameters"}) {
    const std::string name = shard;
    Config whole = narrow("whole_" + name);
    whole.parallel.shard = shard;
    fit(2, whole);
    Config parts = narrow("parts_" + name);
    parts.parallel.shard = shard;
    parts.train.max_steps = 7;
    fit(2, parts);
    parts.train.max_steps = 0;
    parts.run.resume = "true";
    fit(2, parts);
    EXPECT_EQ(losses("parts_" + name), losses("whole_" + name));
    EXPECT_EQ(model("parts_" + name), model("whole_" + name));
    EXPECT_NEAR(losses("whole_" + name)[58], losses("whole")[58], 0.01);
  }
  Config other = with("bf16", "parts_none");
  other.run.resume = "true";
  EXPECT_EQ(failure(2, other), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("train.weights"));
}

// A gradient overflows on rank 1 of three. All ranks skip that step and go on with the same weights.
TEST_F(PrecisionRun, AnOverflowIsSkippedByAll) {
  for (const char* strategy : {"plain", "local_sgd"}) {
    Config narrow = with("fp16", strategy);
    narrow.parallel.strategy.name = strategy;
    narrow.train.clip_norm = 5;
    fit(3, narrow, [](int rank, SmallTask& task, TrainerOptions&) {
      if (rank == 1) task.poison_gradient_call = 2;
    });
    std::vector<bool> has_norm;
    for (const auto& line : lines_of(root_ / strategy)) has_norm.push_back(line.contains("grad_norm"));
    ASSERT_EQ(has_norm.size(), 9U);
    EXPECT_FALSE(has_norm[1]);
    // The search for the first scale skips steps too.
    EXPECT_GE(std::count(has_norm.begin(), has_norm.end(), true), 5);
    EXPECT_LT(losses(strategy)[7], losses(strategy)[0]);
  }
}

// put_() without accumulation keeps any one of several values for the same index.
TEST_F(PrecisionRun, AnOperatorThatIsNotDeterministicEndsADeterministicRun) {
  std::optional<Failure> failure;
  const Prepare puts = [&](int, SmallTask& task, TrainerOptions&) {
    task.before_call = [&](std::int64_t) {
      try {
        at::zeros({4}).put_(at::tensor({1, 1}, at::kLong), at::ones({2}));
      } catch (...) {
        failure = failure_of(std::current_exception());
        throw;
      }
    };
  };
  fit(1, config("any"), puts);
  EXPECT_FALSE(failure.has_value());
  Config run = config("deterministic");
  run.train.deterministic = true;
  EXPECT_ANY_THROW(fit(1, run, puts));
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->exit_code, static_cast<int>(ExitCode::kConfiguration));
  EXPECT_THAT(failure->text, AllOf(HasSubstr("train.deterministic: put_ does not have"), HasSubstr("fix: leave")));
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());  // the mode ends with the run
}

}  // namespace
}  // namespace reigen::train
