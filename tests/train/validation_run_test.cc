// When a run validates (validate.every), how much of the test data (validate.limit), and whether it is tried out before
// the first step (validate.sanity). A run has three epochs of three steps.
#include "train/loop/early_stop.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

class ValidationRun : public TrainerTest {
 protected:
  // The steps after which the run validated. The last one is the validation at the end.
  std::vector<std::int64_t> steps(const std::string& directory) const {
    std::vector<std::int64_t> all;
    for (const auto& line : validations_of(root_ / directory)) all.push_back(line["step"]);
    return all;
  }
};

TEST_F(ValidationRun, ComesAfterTheStepsThatAreAskedFor) {
  const struct {
    const char* every;
    std::vector<std::int64_t> steps;
  } kCases[] = {{"1 epoch", {3, 6, 9}},
                {"2", {2, 4, 6, 8, 9}},
                {"5 steps", {5, 9}},
                {"2 epochs", {6, 9}},
                {"0.5 epochs", {2, 3, 5, 6, 8, 9}},  // 1.5, 3, 4.5 ... steps
                {"0.1 epochs", {1, 2, 3, 4, 5, 6, 7, 8, 9}},
                {"0.000001 s", {1, 2, 3, 4, 5, 6, 7, 8, 9}},
                {"100 h", {9}}};
  fit(1, config("usual"));
  for (const int ranks : {1, 3}) {
    for (const auto& [every, expected] : kCases) {
      Config run = config("run");
      run.validate.every = every;
      fit(ranks, run);
      EXPECT_EQ(steps("run"), expected) << every << " on " << ranks;
      EXPECT_EQ(losses("run").size(), 9U);
      if (ranks == 1) {
        EXPECT_EQ(model("run"), model("usual")) << "a validation changes no weight";
      }
      fs::remove_all(root_ / "run");
    }
  }
}

TEST_F(ValidationRun, AResumedRunValidatesAfterTheSameSteps) {
  Config whole = config("whole");
  whole.validate.every = "2";
  fit(2, whole);
  Config parts = config("parts");
  parts.validate.every = "2";
  parts.train.max_steps = 3;
  fit(2, parts);
  EXPECT_EQ(steps("parts"), (std::vector<std::int64_t>{2, 3}));
  parts.train.max_steps = 0;
  parts.run.resume = "true";
  fit(1, parts);
  EXPECT_EQ(steps("parts"), (std::vector<std::int64_t>{2, 3, 4, 6, 8, 9}));
  EXPECT_EQ(losses("parts").size(), losses("whole").size());
  for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(losses("parts")[i], losses("whole")[i], 1e-9) << i;
}

TEST_F(ValidationRun, ALimitHoldsForAllButTheLast) {
  for (const int ranks : {1, 3}) {
    Config run = config("run");
    run.validate.every = "4";
    run.validate.limit = 100;
    fit(ranks, run);
    const auto lines = validations_of(root_ / "run");
    ASSERT_EQ(lines.size(), 3U);
    EXPECT_EQ(lines[0]["test_samples"], 100);
    EXPECT_EQ(lines[1]["test_samples"], 100);
    EXPECT_EQ(lines[2]["test_samples"], 511);
    fs::remove_all(root_ / "run");
  }
}

// The mistake is told before the first step.
TEST_F(ValidationRun, IsTriedOutBeforeTheFirstStep) {
  Config run = config("run");
  run.validate.sanity = 2;
  const Prepare small = [](int, SmallTask& task, TrainerOptions&) { task.samples_a_call = 10; };
  fit(3, run, small);
  EXPECT_THAT(output_, HasSubstr("validation tried out on 60 test samples"));
  EXPECT_EQ(validations_of(root_ / "run").size(), 3U);
  fit(3, config("usual"));
  EXPECT_EQ(losses("run"), losses("usual"));
  EXPECT_EQ(model("run"), model("usual"));
  run.run.resume = "true";
  run.train.epochs = 4;
  fit(2, run, small);
  EXPECT_THAT(output_, Not(HasSubstr("tried out")));
}

// The weights that ranks gather for initial.safetensors are there after the trial.
TEST_F(ValidationRun, TheInitialWeightsAreSavedAfterTheTrial) {
  backend_ = "tcp";
  Config run = config("usual");
  run.run.save_initial = true;
  run.parallel.shard = "parameters";
  fit(2, run);
  run.run.dir = (root_ / "run").string();
  run.validate.sanity = 1;
  fit(2, run);
  EXPECT_EQ(read_file(root_ / "run" / "initial.safetensors"), read_file(root_ / "usual" / "initial.safetensors"));
}

// More data in a resumed run: validations are at the ends of the new epochs.
TEST_F(ValidationRun, EpochsAreThoseOfTheData) {
  Config run = config("run");
  run.train.max_steps = 4;
  fit(1, run);
  run.train.max_steps = 0;
  run.train.epochs = 4;
  run.run.resume = "true";
  run.data.may_differ = true;
  fit(1, run, [](int, SmallTask& task, TrainerOptions&) { task.data = made_data(97 * 2, at::kDouble, "train"); });
  const auto found = steps("run");
  ASSERT_GE(found.size(), 3U);
  EXPECT_EQ(found[0], 3);
  EXPECT_EQ(found[1], 4);  // the end of the first start
  EXPECT_EQ(found[2], 6);  // the epoch of step 4 began anew, and has two steps now
}

// The loss of the test data grows, as training data say something else: the run ends after `patience` validations.
TEST_F(ValidationRun, EndsWhenAFigureNoLongerImproves) {
  const auto contrary = [](int, SmallTask& task, TrainerOptions&) {
    const at::Tensor input = at::empty({60, 6}, at::kDouble);
    nn::fill_uniform(input, "contrary", 11, 1.0);
    task.held_out = data::in_memory(input, input.narrow(1, 0, 4).argmin(1), "contrary");
  };
  for (const int ranks : {1, 3}) {
    Config run = config("run");
    run.train.epochs = 10;
    run.optim.lr = 0.1;
    run.validate.every = "2";
    run.validate.limit = 40;
    run.stop.monitor = "test_loss";
    run.stop.patience = 3;
    fit(ranks, run, contrary);
    const auto lines = validations_of(root_ / "run");
    // The first validation is the best one. Three more, and the one at the end.
    EXPECT_EQ(steps("run"), (std::vector<std::int64_t>{2, 4, 6, 8, 8}));
    EXPECT_THAT(output_, HasSubstr("the training ends after step 8: test_loss was not better than"));
    EXPECT_TRUE(fs::exists(root_ / "run" / "model.safetensors"));

    // A run that is resumed in between counts the validations before.
    Config parts = run;
    parts.run.dir = (root_ / "parts").string();
    parts.train.max_steps = 5;
    fit(ranks, parts, contrary);
    parts.train.max_steps = 0;
    parts.run.resume = "true";
    fit(ranks, parts, contrary);
    EXPECT_THAT(output_, HasSubstr("the training ends after step "));
    EXPECT_LE(losses("parts").size(), 8U);
    // A run that has ended so does not begin again.
    run.run.resume = "true";
    fit(ranks, run, contrary);
    EXPECT_THAT(output_, HasSubstr("already finished: test_loss was not better than"));
    EXPECT_EQ(losses("run").size(), 8U);
    fs::remove_all(root_ / "run");
    fs::remove_all(root_ / "parts");
  }
}

TEST_F(ValidationRun, EndsWhenAThresholdIsReached) {
  Config run = config("run");
  run.validate.every = "1";
  run.stop.monitor = "test_accuracy";
  run.stop.mode = "max";
  run.stop.threshold = 0.0;
  fit(2, run);
  EXPECT_EQ(steps("run"), (std::vector<std::int64_t>{1, 1}));
  EXPECT_THAT(output_, HasSubstr("the training ends after step 1: test_accuracy has reached 0"));
}

TEST_F(ValidationRun, AFigureThatIsNotThereIsRefused) {
  Config run = config("run");
  run.validate.sanity = 1;
  run.stop.monitor = "test_acuracy";
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("stop.monitor names no figure of the validation"),
                                   HasSubstr("did you mean test_accuracy?")));
  EXPECT_FALSE(fs::exists(root_ / "run" / "config.toml"));
}

TEST(EarlyStop, CountsAndComparesAsItSays) {
  config::StopConfig config{.monitor = "x", .mode = "max", .patience = 2, .min_delta = 0.1};
  EarlyStop stop(config);
  EXPECT_EQ(stop.reason(), "");
  for (const double value : {double{NAN}, 0.5, 0.55, 0.7, 0.75}) {
    stop.note(value);
    EXPECT_EQ(stop.reason(), "") << value;
  }
  stop.note(0.79);
  EXPECT_EQ(stop.reason(), "x was not better than 0.7 in 2 validations");
  stop.note(0.9);
  EXPECT_EQ(stop.reason(), "");
  EarlyStop never_better({.monitor = "x", .patience = 2});
  never_better.note(NAN);
  EXPECT_EQ(never_better.reason(), "");
  never_better.note(NAN);
  EXPECT_NE(never_better.reason(), "");
}

TEST_F(ValidationRun, AWordThatIsNoDurationIsRefused) {
  Config run = config("run");
  run.validate.every = "2 weeks";
  EXPECT_EQ(failure(2, run), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("validate.every is no number of steps, epochs or time"));
}

}  // namespace
}  // namespace reigen::train
