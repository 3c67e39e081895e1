// Runs that compute in 16 bits.
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

}  // namespace
}  // namespace reigen::train
