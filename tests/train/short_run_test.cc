// Runs that end early or take a part of the data on purpose: train.max_time, train.overfit and run.fast_dev.
#include "train/small_run.h"

namespace reigen::train {
namespace {

class ShortRun : public TrainerTest {
 protected:
  // What this process has in the folder for temporary files.
  static std::vector<std::string> temporary() {
    std::vector<std::string> names;
    const std::string prefix = "reigen_fast_dev_" + std::to_string(::getpid());
    for (const auto& entry : fs::directory_iterator(fs::temp_directory_path())) {
      if (entry.path().filename().string().starts_with(prefix)) names.push_back(entry.path().filename().string());
    }
    return names;
  }
};

TEST_F(ShortRun, EndsWhenItsTimeIsOver) {
  for (const int ranks : {1, 3}) {
    Config run = config("run");
    run.train.max_time = "0.000001 s";
    const FitResult result = fit(ranks, run);
    EXPECT_EQ(result.steps, 1);
    EXPECT_FALSE(result.stopped) << "it has ended, and is not broken off";
    EXPECT_THAT(output_, HasSubstr("the training ends after step 1: train.max_time 0.000001 s is over"));
    EXPECT_TRUE(summary("run").contains("test_loss"));
    run.train.max_time = "100 h";
    run.run.resume = "true";
    EXPECT_EQ(fit(ranks, run).steps, 9);
    EXPECT_EQ(losses("run").size(), 9U);
    fs::remove_all(root_ / "run");
  }
  Config strategy = config("strategy");
  strategy.train.max_time = "0.000001 s";
  strategy.train.epochs = 20;
  strategy.parallel.strategy.name = "local_sgd";
  EXPECT_EQ(fit(2, strategy).steps, 4) << "losses are added up at the end of an epoch, and it acts in the next step";
}

TEST_F(ShortRun, TrainsOnTheFirstBatchesAlone) {
  for (const int ranks : {1, 3}) {
    Config run = config("run");
    run.train.overfit = 1;
    run.train.epochs = 30;
    run.data.dump_order = (root_ / "order").string();
    fit(ranks, run);
    const auto got = losses("run");
    ASSERT_EQ(got.size(), 30U) << "a step an epoch";
    EXPECT_LT(got.back(), 0.9 * got.front());
    std::ifstream in(root_ / "order");
    std::string expected;
    for (int i = 0; i < 97; ++i) expected += (i > 0 ? " " : "") + std::to_string(i);
    int lines = 0;
    for (std::string line; std::getline(in, line); ++lines) EXPECT_EQ(line, expected);
    EXPECT_EQ(lines, 30);
    fs::remove_all(root_ / "run");
  }
}

// The file is written again from the seed, in the order that the run has.
TEST_F(ShortRun, AResumedRunTellsTheSameOrderOfSamples) {
  std::vector<std::string> orders;
  for (const char* shuffle : {"full", "blocks", "none"}) {
    const auto order_of = [&](const std::string& name, bool stops) {
      Config run = config(name + shuffle);
      run.data.shuffle = shuffle;
      run.data.dump_order = (root_ / (name + shuffle + ".txt")).string();
      if (stops) run.train.max_steps = 4;
      fit(2, run);
      if (stops) {
        run.train.max_steps = 0;
        run.run.resume = "true";
        fit(2, run);
      }
      return read_file(run.data.dump_order);
    };
    orders.push_back(order_of("whole", false));
    EXPECT_EQ(order_of("stopped", true), orders.back()) << shuffle;
  }
  EXPECT_NE(orders[0], orders[2]);
}

TEST_F(ShortRun, ATrialTestsSomeBatches) {
  fit(1, config("run"));
  Config trial = config("");
  trial.run.dir.clear();
  trial.run.weights = (root_ / "run/model.safetensors").string();
  trial.run.fast_dev = 2;
  for (const int ranks : {1, 3}) {
    run_threads(ranks, [&](Communicator& world) {
      SmallTask task(trial);
      task.samples_a_call = 10;
      EXPECT_EQ(Trainer(task, world, {.config = trial}).validate().terms, 2 * 10 * ranks);
      SmallTask other(trial);
      other.samples_a_call = 10;
      EXPECT_EQ(Trainer(other, world, {.config = trial}).test().terms, 2 * 10 * ranks);
    });
  }
}

TEST_F(ShortRun, ATrialLeavesNothing) {
  for (const int ranks : {1, 3}) {
    Config run = config("run");
    run.run.dir.clear();
    run.run.fast_dev = 2;
    run.checkpoint.every = "1";
    std::int64_t validated = 0;
    const FitResult result = fit(ranks, run, [&](int, SmallTask& task, TrainerOptions& options) {
      task.samples_a_call = 10;
      struct Counts : Callback {
        explicit Counts(std::int64_t* its_count) : count(its_count) {}
        std::string name() const override { return "counts"; }
        void end_validation(Moment& m, const Figures& figures) override {
          if (m.world.rank() == 0) *count = figures.terms;
        }
        void saved_checkpoint(Moment&, const std::filesystem::path& path) override {
          ADD_FAILURE() << path << " is saved, and lies on one machine only";
        }
        std::int64_t* count;
      };
      options.callbacks = {std::make_shared<Counts>(&validated)};
    });
    EXPECT_EQ(result.steps, 2);
    EXPECT_EQ(validated, 2 * 10 * ranks);
    EXPECT_TRUE(fs::is_empty(root_));
    EXPECT_TRUE(temporary().empty());
    const ExitCode code = failure(ranks, run, [](int, SmallTask& task, TrainerOptions&) { task.poison_call = 1; });
    EXPECT_EQ(code, ExitCode::kNotANumber);
    EXPECT_TRUE(temporary().empty()) << "not after an error either";
  }
}

// Somebody who resumes a run without its flags must not end it.
TEST_F(TrainerTest, ARunIsNotCutByAResumeThatAsksForLess) {
  fit(2, config("run"));
  const std::string options = read_file(root_ / "run" / "config.toml");
  const std::string figures = read_file(root_ / "run" / "summary.json");
  Config less = config("run");
  less.run.resume = "true";
  less.train.epochs = 1;
  EXPECT_EQ(failure(2, less), ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("the checkpoint is of step 9"),
                                   HasSubstr("got: 3 steps, by train.epochs 1"), HasSubstr("config.toml")));
  EXPECT_EQ(read_file(root_ / "run" / "config.toml"), options);
  EXPECT_EQ(read_file(root_ / "run" / "summary.json"), figures);
}

}  // namespace
}  // namespace reigen::train
