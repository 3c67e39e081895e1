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
  Config plateau(const std::string& name) const {
    Config run = config(name);
    run.validate.every = "1";
    optim::ScheduleOf<optim::Schedule::kPlateau> schedule;
    schedule.options.monitor = "figure";
    schedule.options.patience = 1;
    run.optim.schedule = schedule;
    return run;
  }
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

// The checkpoint has the figures of the validations before it, so metrics.jsonl of its run is not needed.
TEST_F(PlateauRun, GoesOnInAnotherDirectoryAsInItsOwn) {
  const std::vector<double> values{5, 4, 4, 4, 4, 4, 4, 4, 4};
  const auto watched = [&](const std::string& name) {
    Config run = plateau(name);
    run.stop.monitor = "figure";
    run.stop.patience = 6;  // ends the run after step 8
    return run;
  };
  fit(2, watched("whole"), gives(values));
  EXPECT_THAT(output_, HasSubstr("the training ends after step 8"));
  const auto all = rates("whole");
  ASSERT_EQ(all.size(), 8U);
  EXPECT_TRUE(fit(2, watched("first"), gives(values, 5)).stopped);
  const auto done = static_cast<std::ptrdiff_t>(rates("first").size());
  ASSERT_GE(done, 4);
  ASSERT_LT(done, 7);
  Config second = watched("second");
  second.run.resume = (root_ / "first").string();
  EXPECT_TRUE(fit(2, second, gives(values, 1)).stopped);
  second.run.resume = "true";
  fit(2, second, gives(values));
  EXPECT_EQ(rates("second"), std::vector<double>(all.begin() + done, all.end()));
  EXPECT_TRUE(model("second") == model("whole"));
  fs::copy(checkpoint::list(root_ / "first/checkpoints").front(), root_ / "alone", fs::copy_options::recursive);
  Config third = watched("third");
  third.run.resume = (root_ / "alone").string();
  fit(1, third, gives(values));
  EXPECT_THAT(output_, Not(HasSubstr("are not known")));
  EXPECT_EQ(rates("third"), rates("second"));
}

TEST_F(PlateauRun, SaysWhenTheEarlierFiguresAreNotKnown) {
  fit(2, config("first"));
  Config second = plateau("second");
  second.train.epochs = 4;
  second.run.resume = checkpoint::list(root_ / "first/checkpoints").front().string();
  fs::remove(root_ / "first/metrics.jsonl");
  fit(2, second, gives(std::vector<double>(12, 1)));
  EXPECT_THAT(output_, HasSubstr("warning: the values of earlier validations are not known"));
}

TEST_F(PlateauRun, AFigureThatIsNaNIsToldOnce) {
  Config run = plateau("run");
  run.stop.monitor = "figure";
  run.stop.patience = 3;
  fit(3, run, gives(std::vector<double>(9, std::nan(""))));
  const std::string told = "warning: figure after step 1 is NaN; for stop.monitor it is worse than any number";
  EXPECT_THAT(output_, HasSubstr(told));
  EXPECT_EQ(output_.find("NaN; for stop.monitor"), output_.rfind("NaN; for stop.monitor"));
  EXPECT_THAT(output_, HasSubstr("is NaN; for optim.monitor"));
  EXPECT_THAT(output_, HasSubstr("after step 3: figure was NaN or as bad as possible in 3 validations"));
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
  summary.mean.data = 0.5 * summary.mean.step;
  summary.cores = 2;
  EXPECT_THAT(to_text(summary), HasSubstr("steps wait for batches 50 % of the time, with 2 workers on 2 cores"));
}

}  // namespace
}  // namespace reigen::train
