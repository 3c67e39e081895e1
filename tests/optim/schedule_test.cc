// Values known from PyTorch's schedulers, and edge cases: step 0, the last step, later steps, a warm-up longer than the
// run.
#include "reigen/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reigen/base/error.h"

namespace reigen::optim {
namespace {

using testing::HasSubstr;

TEST(Schedule, WarmUpGrowsLinearlyAndStays) {
  EXPECT_DOUBLE_EQ(warm_up(1e-3, 0, 100), 1e-5);
  EXPECT_DOUBLE_EQ(warm_up(1e-3, 49, 100), 5e-4);
  EXPECT_DOUBLE_EQ(warm_up(1e-3, 98, 100), 9.9e-4);
  for (const std::int64_t step : {99, 100, 1000000}) EXPECT_EQ(warm_up(1e-3, step, 100), 1e-3);
  for (const std::int64_t warmup : {0, 1}) EXPECT_EQ(warm_up(1e-3, 0, warmup), 1e-3);
}

TEST(Schedule, StepAndMultiStep) {
  EXPECT_EQ(step_factor(0, 30, 0.1), 1);
  EXPECT_EQ(step_factor(29, 30, 0.1), 1);
  EXPECT_DOUBLE_EQ(step_factor(30, 30, 0.1), 0.1);
  EXPECT_DOUBLE_EQ(step_factor(89, 30, 0.1), 0.01);
  EXPECT_EQ(multi_step_factor(0, {}, 0.1), 1);
  EXPECT_EQ(multi_step_factor(29, {30, 80}, 0.1), 1);
  EXPECT_DOUBLE_EQ(multi_step_factor(30, {30, 80}, 0.1), 0.1);
  EXPECT_DOUBLE_EQ(multi_step_factor(80, {30, 80}, 0.1), 0.01);
  EXPECT_DOUBLE_EQ(multi_step_factor(0, {0}, 0.5), 0.5);
}

TEST(Schedule, CosineAndPolynomialGoToTheirFloorAndStay) {
  EXPECT_EQ(cosine_factor(0, 10, 0.1), 1);
  EXPECT_DOUBLE_EQ(cosine_factor(5, 10, 0), 0.5);
  EXPECT_DOUBLE_EQ(cosine_factor(3, 10, 0.1), 0.1 + 0.9 * (1 + std::cos(0.3 * M_PI)) / 2);
  for (const std::int64_t step : {10, 11, 1000}) EXPECT_DOUBLE_EQ(cosine_factor(step, 10, 0.1), 0.1);
  EXPECT_EQ(polynomial_factor(0, 10, 2, 0), 1);
  EXPECT_DOUBLE_EQ(polynomial_factor(5, 10, 2, 0), 0.25);
  EXPECT_DOUBLE_EQ(polynomial_factor(5, 10, 1, 0.5), 0.75);
  for (const std::int64_t step : {10, 1000}) EXPECT_EQ(polynomial_factor(step, 10, 0, 0.25), 0.25);
  EXPECT_EQ(cosine_factor(0, 0, 0.1), 0.1) << "nothing of no steps is left";
}

// torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10): 0.04 at the begin, 1 at step 2, 4e-6 at step 9.
TEST(Schedule, OneCycleIsPyTorchs) {
  EXPECT_DOUBLE_EQ(one_cycle_factor(0, 10, 0.3, 25, 1e4), 0.04);
  EXPECT_DOUBLE_EQ(one_cycle_factor(1, 10, 0.3, 25, 1e4), 0.52);
  EXPECT_DOUBLE_EQ(one_cycle_factor(2, 10, 0.3, 25, 1e4), 1);
  EXPECT_NEAR(one_cycle_factor(3, 10, 0.3, 25, 1e4), (1 + std::cos(M_PI / 7)) / 2, 1e-5);
  for (const std::int64_t step : {9, 10, 99}) EXPECT_DOUBLE_EQ(one_cycle_factor(step, 10, 0.3, 25, 1e4), 4e-6);
  EXPECT_DOUBLE_EQ(one_cycle_factor(0, 10, 0, 25, 1e4), 1) << "no rise";
  EXPECT_DOUBLE_EQ(one_cycle_factor(9, 10, 1, 25, 1e4), 1) << "no fall";
  for (std::int64_t step = 0; step < 3; ++step) EXPECT_TRUE(std::isfinite(one_cycle_factor(step, 1, 0.3, 25, 1e4)));
}

TEST(Schedule, StableThenDecay) {
  EXPECT_EQ(stable_decay_factor(0, 100, 20, 0), 1);
  EXPECT_EQ(stable_decay_factor(80, 100, 20, 0), 1);
  EXPECT_DOUBLE_EQ(stable_decay_factor(90, 100, 20, 0), 0.5);
  EXPECT_DOUBLE_EQ(stable_decay_factor(99, 100, 20, 0), 0.05);
  EXPECT_DOUBLE_EQ(stable_decay_factor(500, 100, 20, 0.1), 0.1);
  EXPECT_EQ(stable_decay_factor(99, 100, 0, 0), 1) << "no decay before the end";
  EXPECT_EQ(stable_decay_factor(100, 100, 0, 0.2), 0.2);
  EXPECT_DOUBLE_EQ(stable_decay_factor(0, 100, 200, 0), 0.5) << "a decay longer than the run has begun before it";
}

TEST(Schedule, AWarmUpGoesInFrontOfAny) {
  const ScheduleOptions cosine{.kind = Schedule::kCosine, .warmup_steps = 10, .total_steps = 110, .min_factor = 0.1};
  EXPECT_DOUBLE_EQ(scheduled_lr(2, 0, cosine), 0.2);
  EXPECT_DOUBLE_EQ(scheduled_lr(2, 9, cosine), 2);
  EXPECT_DOUBLE_EQ(scheduled_lr(2, 10, cosine), 2);
  EXPECT_DOUBLE_EQ(scheduled_lr(2, 60, cosine), 1.1);
  EXPECT_DOUBLE_EQ(scheduled_lr(2, 110, cosine), 0.2);
  const ScheduleOptions steps{.kind = Schedule::kStep, .warmup_steps = 10, .step_size = 30};
  EXPECT_DOUBLE_EQ(scheduled_lr(1, 4, steps), 0.5);
  EXPECT_DOUBLE_EQ(scheduled_lr(1, 30, steps), 0.1) << "counted from the begin of the run";
  const ScheduleOptions plain{.warmup_steps = 4};
  for (std::int64_t step = 0; step < 6; ++step) EXPECT_EQ(scheduled_lr(1e-3, step, plain), warm_up(1e-3, step, 4));
  const ScheduleOptions wsd{
      .kind = Schedule::kWarmupStableDecay, .warmup_steps = 10, .total_steps = 100, .decay_steps = 20};
  EXPECT_DOUBLE_EQ(scheduled_lr(1, 4, wsd), 0.5);
  EXPECT_DOUBLE_EQ(scheduled_lr(1, 50, wsd), 1);
  EXPECT_DOUBLE_EQ(scheduled_lr(1, 90, wsd), 0.5);
}

TEST(Schedule, AWarmUpMayBeginAboveZero) {
  EXPECT_EQ(warm_up_from(0.1, 3.2, 0, 100), 0.1);
  EXPECT_DOUBLE_EQ(warm_up_from(0.1, 3.2, 50, 100), 1.65);
  EXPECT_EQ(warm_up_from(0.1, 3.2, 100, 100), 3.2);
  EXPECT_EQ(warm_up_from(0.1, 3.2, 5, 0), 3.2) << "no warm-up";
  EXPECT_EQ(warm_up_from(0.1, 0.05, 3, 100), 0.05) << "the rate never falls";
  EXPECT_EQ(warm_up_from(0, 1, 0, 4), 0);
  const ScheduleOptions steps{
      .kind = Schedule::kMultiStep, .warmup_steps = 10, .warmup_from = 0.5, .milestones = {20, 30}};
  EXPECT_DOUBLE_EQ(scheduled_lr(2, 0, steps), 0.5);
  EXPECT_DOUBLE_EQ(scheduled_lr(2, 4, steps), 0.5 + 1.5 * 0.4);
  EXPECT_DOUBLE_EQ(scheduled_lr(2, 10, steps), 2);
  EXPECT_DOUBLE_EQ(scheduled_lr(2, 25, steps), 0.2);
}

TEST(Schedule, AWarmUpLongerThanTheRunIsAllThereIs) {
  for (const Schedule kind : {Schedule::kCosine, Schedule::kPolynomial, Schedule::kWarmupStableDecay}) {
    const ScheduleOptions options{.kind = kind, .warmup_steps = 100, .total_steps = 50, .decay_steps = 10};
    for (std::int64_t step = 0; step < 50; ++step) {
      EXPECT_DOUBLE_EQ(scheduled_lr(1, step, options), static_cast<double>(step + 1) / 100);
    }
  }
}

TEST(Schedule, BadOptionsAreRefusedNamingThem) {
  const auto error = [](const ScheduleOptions& options) -> std::string {
    try {
      check(options);
    } catch (const InvalidArgument& caught) {
      return caught.what();
    }
    return "no error";
  };
  EXPECT_THAT(error({.warmup_steps = -1}), HasSubstr("warmup_steps"));
  EXPECT_THAT(error({.warmup_from = -0.1}), HasSubstr("warmup_from"));
  EXPECT_THAT(error({.kind = Schedule::kCosine}), HasSubstr("total_steps"));
  EXPECT_THAT(error({.kind = Schedule::kStep}), HasSubstr("step_size"));
  EXPECT_THAT(error({.gamma = std::nan("")}), HasSubstr("gamma"));
  EXPECT_THAT(error({.milestones = {2, 1}}), HasSubstr("milestones"));
  EXPECT_THAT(error({.min_factor = 1.5}), HasSubstr("min_factor"));
  EXPECT_THAT(error({.power = -1}), HasSubstr("power"));
  EXPECT_THAT(error({.decay_steps = -1}), HasSubstr("decay_steps"));
  EXPECT_THAT(error({.pct_start = 2}), HasSubstr("pct_start"));
  EXPECT_THAT(error({.div_factor = 0}), HasSubstr("div_factor"));
  EXPECT_THAT(error({.final_div_factor = std::numeric_limits<double>::infinity()}), HasSubstr("final_div_factor"));
  EXPECT_EQ(error({}), "no error");
}

TEST(Schedule, LearningRatesFollowTheBatch) {
  EXPECT_EQ(scaled_lr(0.1, LrScaling::kNone, 8192, 0), 0.1);
  EXPECT_DOUBLE_EQ(scaled_lr(0.1, LrScaling::kLinear, 8192, 256), 3.2);
  EXPECT_DOUBLE_EQ(scaled_lr(0.1, LrScaling::kSqrt, 1024, 256), 0.2);
  EXPECT_THROW(scaled_lr(0.1, LrScaling::kLinear, 64, 0), InvalidArgument);
}

}  // namespace
}  // namespace reigen::optim
