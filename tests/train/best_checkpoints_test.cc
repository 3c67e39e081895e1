// checkpoint.every in any duration, checkpoint.monitor with top_k, and the names best and last.
#include <cmath>

#include "reigen/checkpoint/checkpoint.h"
#include "train/files/best_checkpoints.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

// Gives the validation after step i the figure values[i - 1].
class GivesFigures : public Callback {
 public:
  GivesFigures(SmallTask& task, std::vector<double> values) : task_(task), values_(std::move(values)) {}
  std::string name() const override { return "figures"; }
  void begin_validation(Moment& m) override {
    task_.figure = values_.at(static_cast<std::size_t>(std::max<std::int64_t>(m.step, 1) - 1));
  }

 private:
  SmallTask& task_;
  std::vector<double> values_;
};

class BestCheckpointsRun : public TrainerTest {
 protected:
  Config watched(const std::string& name, std::int64_t top_k) const {
    Config run = config(name);
    run.validate.every = "1";
    run.checkpoint.monitor = "figure";
    run.checkpoint.top_k = top_k;
    return run;
  }
  static Prepare gives(const std::vector<double>& values, std::int64_t stop_after = 0) {
    return [=](int, SmallTask& task, TrainerOptions& options) {
      options.callbacks = {std::make_shared<GivesFigures>(task, values)};
      task.figure = 0;  // of the trial before the first step
      if (stop_after > 0)
        options.stop_requested = [calls = std::int64_t{0}, stop_after]() mutable { return ++calls >= stop_after; };
    };
  }
  // The steps that are kept, from the best on, as best.json says and as the disk has them.
  std::vector<std::int64_t> kept(const std::string& name) const {
    const fs::path folder = root_ / name / "checkpoints" / "best";
    std::vector<std::int64_t> steps;
    const auto list = nlohmann::json::parse(read_file(folder / "best.json"));
    for (const auto& one : list["checkpoints"]) {
      steps.push_back(one["step"]);
      const checkpoint::Checkpoint whole(folder / checkpoint::name_of(steps.back()));
      whole.verify();
      EXPECT_EQ(whole.manifest().step, steps.back());
    }
    const auto entries = std::distance(fs::directory_iterator(folder), fs::directory_iterator());
    EXPECT_EQ(entries, static_cast<std::ptrdiff_t>(steps.size() + 1)) << "and best.json";
    return steps;
  }
};

const std::vector<double> kValues{5, 3, 4, 2, 6, 2, 1, 7, 0.5};

TEST_F(BestCheckpointsRun, TheBestAreKept) {
  const double nan = std::nan("");
  const struct {
    std::int64_t top_k;
    const char* mode;
    std::vector<double> values;
    std::vector<std::int64_t> expected;
  } kCases[] = {{1, "min", kValues, {9}},
                {3, "min", kValues, {9, 7, 4}},  // of equal values the earlier one
                {2, "max", kValues, {8, 5}},
                {20, "min", kValues, {9, 7, 4, 6, 2, 3, 1, 5, 8}},
                {2, "min", {nan, 1, nan, 2, 3, nan, 4, 5, 6}, {2, 4}}};
  for (const int ranks : {1, 3}) {
    for (const auto& [top_k, mode, values, expected] : kCases) {
      Config run = watched("run", top_k);
      run.checkpoint.mode = mode;
      fit(ranks, run, gives(values));
      EXPECT_EQ(kept("run"), expected) << top_k << mode;
      EXPECT_EQ(summary("run")["best"]["step"], expected.front());
      EXPECT_THAT(output_, HasSubstr("best           figure "));
      fs::remove_all(root_ / "run");
    }
  }
}

TEST_F(BestCheckpointsRun, AResumedRunHasTheListOfAnUndisturbedOne) {
  const auto list = [&](const std::string& name) { return read_file(root_ / name / "checkpoints/best/best.json"); };
  fit(2, watched("whole", 2), gives(kValues));
  for (std::int64_t stop_after = 1; stop_after <= 8; ++stop_after) {
    const std::string name = "stopped" + std::to_string(stop_after);
    Config run = watched(name, 2);
    EXPECT_TRUE(fit(2, run, gives(kValues, stop_after)).stopped);
    run.run.resume = "last";
    fit(2, run, gives(kValues));
    EXPECT_EQ(list(name), list("whole")) << stop_after;
    EXPECT_EQ(kept(name), kept("whole"));
    EXPECT_EQ(model(name), model("whole"));
  }
}

TEST_F(BestCheckpointsRun, BestIsANameForResumeAndForWeights) {
  Config run = watched("run", 2);
  fit(2, run, gives({9, 8, 1, 8, 8, 8, 8, 8, 8}));
  EXPECT_EQ(best_checkpoint_of(root_ / "run"), root_ / "run/checkpoints/best/step_00000003");
  Config other = config("other");
  other.run.weights = (root_ / "run/checkpoints/best/step_00000003").string();
  Config named = config("run");
  named.run.weights = "best";
  const auto loss_of = [&](const Config& config) {
    double loss = 0;
    run_threads(1, [&](Communicator& world) {
      SmallTask task(config);
      loss = Trainer(task, world, {.config = config}).validate().at("test_loss");
    });
    return loss;
  };
  EXPECT_EQ(loss_of(named), loss_of(other));
  named.run.weights = "last";
  EXPECT_NE(loss_of(named), loss_of(other));
  run.run.resume = "best";
  fit(2, run, gives(kValues));
  EXPECT_THAT(output_, HasSubstr("going on after step 3 from"));
  EXPECT_EQ(losses("run").size(), 9U);
  fit(1, config("plain"));
  Config nothing = config("plain");
  nothing.run.resume = "best";
  EXPECT_EQ(failure(2, nothing), ExitCode::kInputMissing);
  EXPECT_THAT(failure_text_, HasSubstr("keeps no best checkpoint"));
}

TEST_F(BestCheckpointsRun, AStepThatIsValidatedTwiceIsKeptOnce) {
  Config run = watched("run", 3);
  run.stop.monitor = "figure";
  run.stop.threshold = 1;
  fit(2, run, gives({5, 4, 1, 9, 9, 9, 9, 9, 9}));  // ends after step 3, which is validated again at the end
  EXPECT_EQ(kept("run"), (std::vector<std::int64_t>{3, 2, 1}));
  run.stop.threshold.reset();
  run.run.resume = "last";
  fit(2, run, gives({5, 4, 1, 9, 9, 9, 9, 9, 9}));
  EXPECT_EQ(kept("run"), (std::vector<std::int64_t>{3, 2, 1}));
}

// The run is resumed from a checkpoint whose validation was due, was made after it, and is in metrics.jsonl.
TEST_F(BestCheckpointsRun, AValidationThatWasMadeIsNotMadeAgain) {
  Config run = watched("run", 2);
  run.checkpoint.keep = 100;
  EXPECT_TRUE(fit(2, run, gives(kValues, 4)).stopped);
  run.run.resume = "last";
  fit(2, run, gives(kValues));
  const auto before = validations_of(root_ / "run");
  fs::remove_all(root_ / "run/checkpoints/step_00000009");
  fs::remove_all(root_ / "run/checkpoints/best/step_00000009");
  fs::remove_all(root_ / "run/checkpoints/best/step_00000007");
  fit(2, run, gives(kValues));
  EXPECT_THAT(output_, HasSubstr("going on after step 4"));
  std::vector<std::int64_t> steps;
  for (const auto& line : validations_of(root_ / "run")) steps.push_back(line["step"]);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(kept("run"), (std::vector<std::int64_t>{9, 7}));
}

// Newer checkpoints are set aside, so the one from which the run goes on must be found again after a kill.
TEST_F(BestCheckpointsRun, AfterAResumeFromTheBestTheRunIsNeverLost) {
  Config run = watched("run", 1);
  fit(2, run, gives({9, 8, 1, 8, 8, 8, 8, 8, 8}));
  run.run.resume = "best";
  const ExitCode code = failure(2, run, [&](int rank, SmallTask& task, TrainerOptions& options) {
    gives({9, 8, 1, 0.5, 0.25, 8, 8, 8, 8})(rank, task, options);
    task.poison_call = 3;  // the third step of this start
  });
  EXPECT_EQ(code, ExitCode::kNotANumber);
  EXPECT_EQ(best_checkpoint_of(root_ / "run").filename(), "step_00000005");
  EXPECT_TRUE(fs::exists(root_ / "run/checkpoints/best/step_00000003")) << "the way back, while there is no newer one";
  run.run.resume = "true";
  fit(2, run, gives({9, 8, 1, 0.5, 0.25, 8, 8, 8, 8}));
  EXPECT_THAT(output_, HasSubstr("going on after step 5"));
  EXPECT_EQ(losses("run").size(), 9U);
}

// A kill between a checkpoint and the list leaves a list without this checkpoint, and one checkpoint too many.
TEST_F(BestCheckpointsRun, AListThatAKillLeftIsMended) {
  for (const bool has_list : {true, false}) {
    const std::vector<double> values{9, 8, 1, 0.5, 8, 8, 8, 8, 8, 8, 8, 8};
    Config run = watched("run", 1);
    fit(2, run, gives(values));
    const fs::path best = root_ / "run/checkpoints/best";
    ASSERT_EQ(kept("run"), (std::vector<std::int64_t>{4}));
    fs::copy(best / "step_00000004", best / "step_00000003", fs::copy_options::recursive);
    std::ofstream(best / "best.json")
        << R"({"monitor": "figure", "mode": "min", "checkpoints": [{"step": 3, "value": 1.0}]})";
    if (!has_list) fs::remove(best / "best.json");
    run.run.resume = "true";
    run.train.epochs = 4;
    fit(2, run, gives(values));
    EXPECT_EQ(kept("run"), (std::vector<std::int64_t>{4}));
    fs::remove_all(root_ / "run");
  }
}

TEST_F(BestCheckpointsRun, ADamagedBestCheckpointIsPassedOver) {
  Config run = watched("run", 1);
  EXPECT_TRUE(fit(2, run, gives(kValues, 5)).stopped);
  const std::string best = best_checkpoint_of(root_ / "run").string();
  std::ofstream(fs::path(best) / "manifest.json", std::ios::app) << "x";
  run.run.resume = "true";
  fit(2, run, gives(kValues));
  EXPECT_EQ(losses("run").size(), 9U);
  // The other way round: a best checkpoint that is whole is found beside damaged ones.
  for (const fs::path& path : checkpoint::list(root_ / "run/checkpoints"))
    std::ofstream(path / "manifest.json", std::ios::app) << "x";
  EXPECT_TRUE(fit(2, run, gives(kValues)).already_done) << "the last step was the best one";
  EXPECT_THAT(output_, HasSubstr("passed over a damaged checkpoint"));
}

// A run that goes back before its best checkpoints has no best one, also not one that the list lacks.
TEST_F(BestCheckpointsRun, CheckpointsOfAnAbandonedFutureAreSetAside) {
  Config run = watched("run", 1);
  run.checkpoint.every = "2";
  run.checkpoint.keep = 100;
  fit(2, run, gives({9, 8, 7, 6, 5, 4, 1, 2, 3}));
  const fs::path best = root_ / "run/checkpoints/best";
  fs::copy(best / "step_00000007", best / "step_00000008", fs::copy_options::recursive);  // not in the list
  run.run.resume = (root_ / "run/checkpoints/step_00000002").string();
  run.train.max_steps = 3;
  fit(2, run, gives(std::vector<double>(9, std::nan(""))));
  EXPECT_FALSE(fs::exists(best / "step_00000007"));
  EXPECT_FALSE(fs::exists(best / "step_00000008"));
  EXPECT_TRUE(fs::exists(best / "set_aside/step_00000007"));
  run.run.resume = "best";
  EXPECT_EQ(failure(2, run, gives(kValues)), ExitCode::kInputMissing);
  EXPECT_THAT(failure_text_, HasSubstr("keeps no best checkpoint"));
}

// The best checkpoint is chosen by the averaged weights, so these are meant by its name.
TEST_F(BestCheckpointsRun, TheBestWeightsAreTheAveragedOnes) {
  Config run = config("run");
  run.validate.every = "1";
  run.checkpoint.monitor = "test_loss";
  run.optim.ema_decay = 0.5;
  fit(2, run);
  const auto loss_of = [&](const std::string& weights) {
    Config named = config("run");
    named.run.weights = weights;
    double loss = 0;
    run_threads(1, [&](Communicator& world) {
      SmallTask task(named);
      loss = Trainer(task, world, {.config = named}).validate().at("test_loss");
    });
    return loss;
  };
  const auto list = nlohmann::json::parse(read_file(root_ / "run/checkpoints/best/best.json"));
  const double told = list["checkpoints"][0]["value"];
  EXPECT_NEAR(loss_of("best"), told, 1e-12 * told);
  EXPECT_NE(loss_of("last"), loss_of("best"));
}

TEST_F(BestCheckpointsRun, CallbacksDoNotSeeTheTrial) {
  struct Orders : Callback {
    std::string name() const override { return "orders"; }
    void begin_fit(Moment&) override { began = true; }
    void begin_validation(Moment&) override { EXPECT_TRUE(began); }
    bool began = false;
  };
  Config run = config("run");
  run.checkpoint.monitor = "test_loss";
  run.validate.sanity = 2;
  fit(2, run, [](int, SmallTask&, TrainerOptions& options) { options.callbacks = {std::make_shared<Orders>()}; });
  EXPECT_THAT(output_, HasSubstr("validation tried out on"));
}

TEST_F(BestCheckpointsRun, AFigureThatNobodyLogsIsToldBeforeTheFirstStep) {
  Config run = watched("run", 1);
  run.checkpoint.monitor = "test_accurcy";
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("checkpoint.monitor names no figure of the validation"),
                                   HasSubstr("did you mean test_accuracy?")));
  EXPECT_FALSE(fs::exists(root_ / "run/metrics.jsonl"));
}

TEST_F(BestCheckpointsRun, CheckpointsComeAfterTheStepsThatAreAskedFor) {
  const struct {
    const char* every;
    std::vector<std::int64_t> steps;
  } kCases[] = {{"2", {2, 4, 6, 8, 9}}, {"2 epochs", {6, 9}}, {"0.5 epochs", {2, 3, 5, 6, 8, 9}}, {"100 h", {9}}};
  for (const auto& [every, expected] : kCases) {
    Config run = config("run");
    run.checkpoint.every = every;
    run.checkpoint.keep = 100;
    fit(2, run);
    std::vector<std::int64_t> steps;
    for (const fs::path& found : checkpoint::list(root_ / "run" / "checkpoints"))
      steps.push_back(checkpoint::Checkpoint(found).manifest().step);
    std::sort(steps.begin(), steps.end());
    EXPECT_EQ(steps, expected) << every;
    fs::remove_all(root_ / "run");
  }
}

}  // namespace
}  // namespace reigen::train
