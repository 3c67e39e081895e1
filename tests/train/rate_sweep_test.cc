#include "train/program/rate_sweep.h"

#include <cmath>

#include "small_run.h"

namespace reigen::train {
namespace {

RateSweep of(const std::vector<double>& losses) {
  RateSweep sweep;
  for (std::size_t i = 0; i < losses.size(); ++i) note(sweep, static_cast<double>(i + 1), losses[i], {});
  return sweep;
}

TEST(RateSweep, SmoothsAsTheMeanOfTheLossesSoFar) {
  const RateSweep sweep = of({2, 1, 4});
  EXPECT_EQ(sweep.steps[0].smoothed, 2);
  EXPECT_NEAR(sweep.steps[1].smoothed, (1 + 0.95 * 2) / 1.95, 1e-15);
  EXPECT_NEAR(sweep.steps[2].smoothed, (4 + 0.95 * 1 + 0.9025 * 2) / (1 + 0.95 + 0.9025), 1e-15);
}

TEST(RateSweep, SuggestsWhereTheLossFallsFastest) {
  RateSweep sweep;
  for (const double smoothed : {4.0, 3.9, 3.5, 2.0, 1.5, 1.4, 3.0, 9.0})
    sweep.steps.push_back({.rate = static_cast<double>(sweep.steps.size()), .smoothed = smoothed});
  EXPECT_EQ(sweep.lowest(), 5U);
  EXPECT_EQ(sweep.suggestion(), 3.0) << "from 3.5 to 1.5; the fall from 3.9 to 2.0 is smaller";
  EXPECT_EQ(of({1, 2, 3}).suggestion(), std::nullopt);
  EXPECT_EQ(of({}).suggestion(), std::nullopt);
  EXPECT_THAT(to_text(of({1, 2, 3}), 1), HasSubstr("no suggestion: the loss falls at none"));
  EXPECT_THAT(to_text(of({}), 1), HasSubstr("no suggestion: the loss of the first step is not finite"));
  EXPECT_THAT(to_text(sweep, 2),
              HasSubstr("suggestion: --optim.lr 1.5, where the loss falls fastest; it is lowest at 2.5"));
}

TEST(RateSweep, EndsAtFourTimesTheLowestAndWithoutANumber) {
  RateSweep sweep;
  EXPECT_TRUE(note(sweep, 1, 1, {}));
  EXPECT_TRUE(note(sweep, 2, 6, {}));    // smoothed: 3.56
  EXPECT_FALSE(note(sweep, 3, 20, {}));  // 9.3
  EXPECT_FALSE(note(sweep, 4, std::nan(""), {}));
  EXPECT_EQ(sweep.steps.size(), 3U);
}

class RateSweepRun : public TrainerTest {
 protected:
  RateSweep sweep(int ranks, const Config& config, const RateSweepOptions& options = {}) {
    std::vector<RateSweep> found(static_cast<std::size_t>(ranks));
    run_threads(ranks, [&](const Communicator& world) {
      SmallTask task(config);
      nn::initialize(task.module(), 3);
      found[static_cast<std::size_t>(world.rank())] =
          sweep_rates(task, task, world, {.name = "small", .config = config}, options);
    });
    for (const RateSweep& one : found) EXPECT_EQ(one.steps.size(), found[0].steps.size());
    return found[0];
  }
};

TEST_F(RateSweepRun, GrowsByAFactorAndLeavesNothing) {
  Config run = config("kept");
  run.optim.rule = optim::SGDOptions{};
  run.optim.warmup_steps = 500;
  const RateSweep one = sweep(1, run);
  ASSERT_GT(one.steps.size(), 80U);
  for (std::size_t i = 0; i < one.steps.size(); ++i)
    EXPECT_NEAR(std::log10(one.steps[i].rate), -7 + 8.0 * static_cast<double>(i) / 99, 1e-9) << i;
  EXPECT_NEAR(one.steps[0].loss, std::log(4), 0.3);
  ASSERT_TRUE(one.suggestion());
  EXPECT_GT(*one.suggestion(), 1e-2);
  EXPECT_FALSE(fs::exists(root_ / "kept"));
  const RateSweep three = sweep(3, run);
  ASSERT_EQ(three.steps.size(), one.steps.size());
  for (std::size_t i = 0; i < one.steps.size(); ++i) EXPECT_NEAR(three.steps[i].loss, one.steps[i].loss, 1e-9) << i;
  EXPECT_EQ(three.suggestion(), one.suggestion());
}

// The rates are those of the optimizer, whatever scales optim.lr; the schedule does not change them.
TEST_F(RateSweepRun, ScalingAndScheduleDoNotChangeTheRates) {
  Config run = config("kept");
  const RateSweep plain = sweep(2, run);
  run.optim.lr_scaling = "linear";
  run.optim.base_batch = 10;
  run.optim.schedule = optim::ScheduleOf<optim::Schedule::kPlateau>{};
  const RateSweep scaled = sweep(2, run);
  ASSERT_EQ(scaled.steps.size(), plain.steps.size());
  for (std::size_t i = 0; i < plain.steps.size(); ++i) EXPECT_EQ(scaled.steps[i].loss, plain.steps[i].loss) << i;
}

// In fp32 Adam's squares of gradients overflow; the sweep ends with what it has.
TEST_F(RateSweepRun, AnOverflowEndsItWithAResult) {
  Config run = config("kept");
  run.train.precision = "fp32";
  run.parallel.shard = "optimizer";
  const RateSweep found = sweep(2, run, {.lowest = 1e-3, .highest = 1e30, .steps = 60});
  EXPECT_LT(found.steps.size(), 60U);
  EXPECT_TRUE(found.suggestion());
  EXPECT_FALSE(found.is_stopped);
}

// A rate at which the loss grows without bounds ends the sweep.
TEST_F(RateSweepRun, EndsWhenTheLossGrows) {
  Config run = config("kept");
  run.optim.rule = optim::SGDOptions{};
  run.parallel.strategy = parallel::PowerSgdOptions{};  // has errors that no skipped step may have
  const RateSweep found = sweep(2, run, {.lowest = 1e-3, .highest = 1e12, .steps = 60});
  EXPECT_LT(found.steps.size(), 60U);
  EXPECT_TRUE(found.suggestion());
}

TEST_F(RateSweepRun, TheCurveIsThereForTensorBoard) {
  write_board(of({3, 2, 1}), root_ / "find_lr");
  std::size_t files = 0;
  for (const auto& file : fs::directory_iterator(root_ / "find_lr")) {
    const std::string bytes = read_file(file.path());
    EXPECT_THAT(bytes, AllOf(HasSubstr("find_lr/loss"), HasSubstr("find_lr/smoothed_loss"), HasSubstr("find_lr/rate")));
    ++files;
  }
  EXPECT_EQ(files, 1U);
}

}  // namespace
}  // namespace reigen::train
