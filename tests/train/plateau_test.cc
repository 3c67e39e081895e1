// optim.schedule plateau, and what the end report says of waits for data.
#include "train/loop/plateau.h"

#include <cmath>

#include "train/files/summary.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

// The factors after each of these values, by hand, as torch.optim.lr_scheduler.ReduceLROnPlateau(factor=0.5,
// patience=1, threshold=0) gives them.
TEST(Plateau, MultipliesAfterMoreThanPatienceValidationsWithoutABetterOne) {
  const double nan = std::nan("");
  const struct {
    const char* mode;
    std::vector<double> values, factors;
  } kCases[] = {{"min", {5, 4, 4, 4, 3, 3, 3, 3, 3}, {1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2}},
                {"max", {1, 2, 1, 1, 3, 2, 2, 2, 2}, {1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2}},
                {"min", {nan, nan, 7, nan, nan, nan, nan}, {1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2}}};
  for (const auto& [mode, values, factors] : kCases) {
    Plateau plateau({.kind = optim::Schedule::kPlateau, .gamma = 0.5, .min_factor = 0.2, .mode = mode, .patience = 1});
    std::vector<double> got;
    for (const double value : values) {
      plateau.note(value);
      got.push_back(plateau.factor());
    }
    EXPECT_EQ(got, factors) << mode;
  }
}

class PlateauRun : public TrainerTest {
 protected:
  std::vector<double> rates(const std::string& name) const {
    std::vector<double> all;
    for (const auto& line : lines_of(root_ / name)) all.push_back(line["lr"]);
    return all;
  }
  static Prepare gives(const std::vector<double>& values, std::int64_t stop_after = 0) {
    return [=](int, SmallTask& task, TrainerOptions& options) {
      struct Gives : Callback {
        Gives(SmallTask* its_task, std::vector<double> its_values) : task(its_task), values(std::move(its_values)) {}
        std::string name() const override { return "gives"; }
        void begin_validation(Moment& m) override { task->figure = values.at(static_cast<std::size_t>(m.step - 1)); }
        SmallTask* task;
        std::vector<double> values;
      };
      options.callbacks = {std::make_shared<Gives>(&task, values)};
      task.figure = 0;
      if (stop_after > 0)
        options.stop_requested = [calls = std::int64_t{0}, stop_after]() mutable { return ++calls >= stop_after; };
    };
  }
};

TEST_F(PlateauRun, ChangesTheRateAfterTheValidationOnAllRanksAndAfterAResume) {
  const std::vector<double> values{5, 4, 4, 4, 4, 4, 4, 4, 4};
  const std::vector<double> expected{0.01, 0.01, 0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001, 0.00001};
  const auto plateau = [&](const std::string& name) {
    Config run = config(name);
    run.validate.every = "1";
    optim::ScheduleOf<optim::Schedule::kPlateau> schedule;
    schedule.options.monitor = "figure";
    schedule.options.patience = 1;
    run.optim.schedule = schedule;
    return run;
  };
  for (const int ranks : {1, 3}) {
    const std::string name = std::to_string(ranks);
    fit(ranks, plateau(name), gives(values));
    const auto got = rates(name);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-15) << i;
    EXPECT_THAT(output_, HasSubstr("after step 4 the learning rate is multiplied by 0.1: figure stopped improving"));
    for (const std::int64_t stop_after : {3, 4, 6}) {
      const std::string stopped = name + "_" + std::to_string(stop_after);
      Config run = plateau(stopped);
      EXPECT_TRUE(fit(ranks, run, gives(values, stop_after)).stopped);
      run.run.resume = "true";
      fit(ranks, run, gives(values));
      EXPECT_EQ(rates(stopped), got) << stop_after;
      EXPECT_TRUE(model(stopped) == model(name)) << stop_after;
    }
  }
}

TEST_F(PlateauRun, AFigureThatNobodyLogsIsRefused) {
  Config run = config("run");
  optim::ScheduleOf<optim::Schedule::kPlateau> schedule;
  schedule.options.monitor = "los";
  run.optim.schedule = schedule;
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("optim.monitor names no figure of the validation"));
}

TEST(SummaryText, SaysWhereDataAreTheBottleneck) {
  Summary summary{.steps = 1, .data_workers = 2};
  summary.mean = {.step = 0.1, .data = 0.034};
  EXPECT_THAT(to_text(summary),
              HasSubstr("bottleneck     steps wait for batches 34 % of the time: --data.workers 4 (now 2)"));
  summary.mean.data = 0.005;
  EXPECT_THAT(to_text(summary), Not(HasSubstr("bottleneck")));
}

}  // namespace
}  // namespace reigen::train
