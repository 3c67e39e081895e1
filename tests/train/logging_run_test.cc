// What a task logs, and what callbacks see: in files, over ranks, after a resume, and when they fail.
#include <cmath>
#include <sstream>

#include "reigen/format/event_file.h"
#include "train/files/csv_file.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

std::vector<nlohmann::json> epochs_of(const fs::path& directory) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(directory / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    if (json.contains("epoch_means")) lines.push_back(std::move(json));
  }
  return lines;
}

struct Most {
  double most = -1e300;
  void merge(const Most& other) { most = std::max(most, other.most); }
  double value() const { return most; }
};

void log_all(SmallTask& task, const at::Tensor& scores, const at::Tensor& target) {
  task.note("hits", accuracy(scores, target));
  task.note("mean_score", scores.mean());
  task.note("most", Most{scores.max().item<double>()});
}

// The lines of the epochs without their time.
std::vector<std::string> means_of(const fs::path& directory) {
  std::vector<std::string> texts;
  for (nlohmann::json line : epochs_of(directory)) {
    line.erase("time");
    texts.push_back(line.dump());
  }
  return texts;
}

// The rows of metrics.csv without their times, which are the last columns of a step's row.
std::vector<std::vector<std::string>> rows_of(const fs::path& directory) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> names;
  std::ifstream in(directory / "metrics.csv");
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> cells;
    std::stringstream text(line);
    for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
    if (names.empty()) names = cells;
    std::vector<std::string> kept;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string& name = names[i];
      if (!name.ends_with("_ms") && name != "time" && name != "samples_per_s") kept.push_back(name + "=" + cells[i]);
    }
    rows.push_back(kept);
  }
  return rows;
}

// The curves in the file for TensorBoard: step, tag and value of each point, without those of times.
std::vector<std::string> curves_of(const fs::path& directory) {
  std::vector<std::string> points;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (!entry.path().filename().string().starts_with("events.out.tfevents.")) continue;
    format::read_events(read_file(entry.path()), [&](const format::Event& event) {
      for (const auto& [tag, value] : event.scalars) {
        if (tag.starts_with("time/") || tag == "train/samples_per_s") continue;
        points.push_back(std::to_string(event.when.step) + " " + tag + " " + std::to_string(value));
      }
      return true;
    });
  }
  return points;
}

class LoggingRun : public TrainerTest {
 protected:
  static void logs(int /*rank*/, SmallTask& task, TrainerOptions& /*options*/) { task.log_step = log_all; }
};

TEST_F(LoggingRun, TheMeansOfAnEpochAreThoseOfOneRank) {
  std::vector<nlohmann::json> expected;
  for (const int ranks : {1, 2, 3}) {
    Config run = config(std::to_string(ranks));
    run.train.micro_batch = ranks == 2 ? 20 : 0;
    fit(ranks, run, logs);
    const auto lines = epochs_of(root_ / std::to_string(ranks));
    ASSERT_EQ(lines.size(), 3U);
    if (ranks == 1) expected = lines;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      EXPECT_EQ(lines[i]["step"], static_cast<std::int64_t>(3 * (i + 1)));
      const auto& means = lines[i]["epoch_means"];
      for (const char* name : {"hits", "mean_score", "most"})
        EXPECT_NEAR(means[name].get<double>(), expected[i]["epoch_means"][name].get<double>(), 1e-9) << name << ranks;
    }
  }
  // A step's line has the figures of rank 0's samples: with one rank those of the step.
  const auto steps = lines_of(root_ / "1");
  double hits = 0;
  for (std::size_t i = 0; i < 3; ++i) hits += steps[i]["hits"].get<double>() * (i == 2 ? 1 : 97);
  EXPECT_NEAR(hits / 195, expected[0]["epoch_means"]["hits"].get<double>(), 1e-12);
}

TEST_F(LoggingRun, AResumedRunHasTheMeansOfAnUndisturbedOne) {
  Config undisturbed = config("whole");
  undisturbed.log.csv = true;
  undisturbed.validate.every = "2";
  fit(2, undisturbed, logs);
  EXPECT_THAT(curves_of(root_ / "whole"), ::testing::Contains(::testing::StartsWith("3 epoch/hits ")));
  ASSERT_EQ(rows_of(root_ / "whole").size(), 1U + 9 + 3 + 5) << "a header, steps, epochs and validations";
  for (const std::int64_t stop_after : {1, 2, 3, 5}) {
    const std::string name = "stopped" + std::to_string(stop_after);
    Config run = config(name);
    run.log.csv = true;
    run.validate.every = "2";
    const auto stops = [&](int rank, SmallTask& task, TrainerOptions& options) {
      logs(rank, task, options);
      if (rank == 1) {
        options.stop_requested = [calls = std::int64_t{0}, stop_after]() mutable { return ++calls >= stop_after; };
      }
    };
    EXPECT_TRUE(fit(2, run, stops).stopped);
    run.run.resume = "true";
    fit(2, run, logs);
    EXPECT_EQ(means_of(root_ / name), means_of(root_ / "whole")) << stop_after;
    EXPECT_EQ(rows_of(root_ / name), rows_of(root_ / "whole")) << stop_after;
    EXPECT_EQ(curves_of(root_ / name), curves_of(root_ / "whole")) << stop_after;
    EXPECT_EQ(model(name), model("whole"));
  }
  // Another number of ranks goes on from the sums of all.
  Config run = config("other");
  const auto stops = [&](int rank, SmallTask& task, TrainerOptions& options) {
    logs(rank, task, options);
    options.stop_requested = [] { return true; };
  };
  fit(3, run, stops);
  run.run.resume = "true";
  fit(1, run, logs);
  const auto whole = epochs_of(root_ / "whole");
  const auto other = epochs_of(root_ / "other");
  ASSERT_EQ(other.size(), whole.size());
  EXPECT_NEAR(other[0]["epoch_means"]["hits"].get<double>(), whole[0]["epoch_means"]["hits"].get<double>(), 1e-12);
}

TEST_F(LoggingRun, ANameOfOneRankEndsAllRanksWithItsName) {
  const ExitCode code = failure(3, config("run"), [](int rank, SmallTask& task, TrainerOptions&) {
    task.log_step = [rank](SmallTask& self, const at::Tensor& scores, const at::Tensor& target) {
      log_all(self, scores, target);
      if (rank == 1) self.note("only_here", 1.0);
    };
  });
  EXPECT_EQ(code, ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, AllOf(HasSubstr("log(\"only_here\")"), HasSubstr("rank 1 logged it")));
  EXPECT_THAT(codes_, Each(ExitCode::kConfiguration));
}

TEST_F(LoggingRun, AKeyOfTheLineIsRefused) {
  const ExitCode code = failure(2, config("run"), [](int, SmallTask& task, TrainerOptions&) {
    task.log_step = [](SmallTask& self, const at::Tensor&, const at::Tensor&) { self.note("loss", 1.0); };
  });
  EXPECT_EQ(code, ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("training_step() logs \"loss\""));
}

// Notes which hooks it was called from.
class Noting : public Callback {
 public:
  explicit Noting(std::vector<std::string>* calls, std::string name = "noting")
      : calls_(calls), name_(std::move(name)) {}
  std::string name() const override { return name_; }
  void begin_fit(Moment& m) override { note("begin_fit", m); }
  void begin_epoch(Moment& m) override { note("begin_epoch", m); }
  void begin_step(Moment& m, const data::Batch&) override { note("begin_step", m); }
  void after_backward(Moment& m) override {
    ++steps_;
    note("after_backward", m);
  }
  void before_optimizer(Moment& m) override { note("before_optimizer", m); }
  void end_step(Moment& m) override { note("end_step", m); }
  void note_loss(Moment& m, std::int64_t step, double loss) override {
    losses_ += loss;
    EXPECT_EQ(step, m.step);
  }
  void end_epoch(Moment& m, const Figures&) override { note("end_epoch", m); }
  void end_validation(Moment& m, const Figures& figures) override {
    EXPECT_EQ(figures.terms, 511);
    note("end_validation", m);
  }
  void saved_checkpoint(Moment& m, const fs::path& path) override {
    EXPECT_TRUE(fs::exists(path / "manifest.json"));
    note("saved_checkpoint", m);
  }
  void end_fit(Moment& m) override { note("end_fit", m); }
  void failed(std::string_view what) override {
    if (calls_) calls_->push_back("failed: " + std::string(what));
  }
  std::string state() const override { return std::to_string(steps_) + " " + std::to_string(losses_); }
  void restore(std::string_view state) override {
    const std::string text(state);
    steps_ = std::stoi(text);
    losses_ = std::stod(text.substr(text.find(' ')));
  }

 private:
  void note(const char* what, const Moment& m) {
    if (calls_) calls_->push_back(std::string(what) + " " + std::to_string(m.step));
  }
  std::vector<std::string>* calls_;
  std::string name_;
  int steps_ = 0;
  double losses_ = 0;
};

TEST_F(LoggingRun, CallbacksAreCalledInOrder) {
  Config run = config("run");
  run.train.epochs = 1;
  run.train.max_steps = 2;
  run.checkpoint.every_steps = 1;
  std::vector<std::string> calls;
  fit(2, run, [&](int rank, SmallTask&, TrainerOptions& options) {
    options.callbacks = {std::make_shared<Noting>(rank == 0 ? &calls : nullptr)};
  });
  EXPECT_THAT(calls, ::testing::ElementsAre("begin_fit 0", "begin_epoch 0", "begin_step 1", "after_backward 1",
                                            "before_optimizer 1", "end_step 1", "saved_checkpoint 1", "begin_step 2",
                                            "after_backward 2", "before_optimizer 2", "end_step 2",
                                            "saved_checkpoint 2", "end_validation 2", "end_fit 2"));
}

TEST_F(LoggingRun, ACheckpointKeepsTheStatesOfCallbacks) {
  const auto with = [](const std::shared_ptr<Noting>& kept, std::int64_t stop_after) {
    return [=](int rank, SmallTask&, TrainerOptions& options) {
      options.callbacks = {std::make_shared<Noting>(nullptr, "other"),
                           rank == 1 ? kept : std::make_shared<Noting>(nullptr)};
      if (stop_after > 0)
        options.stop_requested = [calls = std::int64_t{0}, stop_after]() mutable { return ++calls >= stop_after; };
    };
  };
  const auto whole = std::make_shared<Noting>(nullptr);
  fit(2, config("whole"), with(whole, 0));
  Config run = config("stopped");
  fit(2, run, with(std::make_shared<Noting>(nullptr), 4));
  run.run.resume = "true";
  const auto resumed = std::make_shared<Noting>(nullptr);
  fit(2, run, with(resumed, 0));
  EXPECT_EQ(resumed->state(), whole->state());
  EXPECT_EQ(whole->state().substr(0, 2), "9 ");
}

TEST_F(LoggingRun, ACallbackStopsTheRun) {
  struct Stops : Callback {
    std::string name() const override { return "stops"; }
    void end_step(Moment& m) override { m.stop = m.step == 4 && m.world.rank() == 1; }
  };
  const FitResult result = fit(3, config("run"), [](int, SmallTask&, TrainerOptions& options) {
    options.callbacks = {std::make_shared<Stops>()};
  });
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.steps, 5) << "all ranks learn of it in the next step";
}

TEST_F(LoggingRun, ACallbackThatThrowsOnOneRankEndsAllRanks) {
  struct Throws : Callback {
    std::string name() const override { return "clumsy"; }
    void before_optimizer(Moment& m) override {
      if (m.world.rank() == 1 && m.step == 2) throw std::runtime_error("dropped a cup");
    }
  };
  std::vector<std::string> calls;
  const ExitCode code = failure(3, config("run"), [&](int rank, SmallTask&, TrainerOptions& options) {
    options.callbacks = {std::make_shared<Throws>(), std::make_shared<Noting>(rank == 1 ? &calls : nullptr)};
  });
  EXPECT_NE(code, ExitCode::kOk);
  EXPECT_THAT(failure_text_, HasSubstr("callback clumsy, before_optimizer() on rank 1: dropped a cup"));
  EXPECT_THAT(calls.back(), AllOf(HasSubstr("failed: "), HasSubstr("dropped a cup")));
}

TEST_F(LoggingRun, TwoCallbacksOfOneNameAreRefused) {
  const ExitCode code = failure(2, config("run"), [](int, SmallTask&, TrainerOptions& options) {
    options.callbacks = {std::make_shared<Noting>(nullptr), std::make_shared<Noting>(nullptr)};
  });
  EXPECT_EQ(code, ExitCode::kConfiguration);
  EXPECT_THAT(failure_text_, HasSubstr("two callbacks have one name\n  got: noting"));
}

TEST_F(LoggingRun, RanksWithOtherCallbacksAreRefused) {
  for (const bool more : {true, false}) {
    const ExitCode code = failure(3, config("run"), [&](int rank, SmallTask&, TrainerOptions& options) {
      if (more ? rank == 1 : rank != 1) options.callbacks = {std::make_shared<Noting>(nullptr)};
    });
    EXPECT_EQ(code, ExitCode::kConfiguration);
    EXPECT_THAT(failure_text_, AllOf(HasSubstr("ranks have other callbacks"), HasSubstr("rank 1")));
  }
}

TEST_F(LoggingRun, ATableTakesNewNamesAndIsCut) {
  const fs::path path = root_ / "table.csv";
  {
    CsvFile table(path, 0);
    table.write(1, {{"a", 0.5}});
    table.write(2, {{"a", 1.0 / 3}, {"b, \"c\"", 2}});
    table.write(3, {{"b, \"c\"", std::nan("")}});
    table.flush();
  }
  EXPECT_EQ(read_file(path), "step,a,\"b, \"\"c\"\"\"\n1,0.5\n2,0.3333333333333333,2\n3,,nan\n");
  {
    CsvFile table(path, 2);
    table.write(3, {{"b, \"c\"", 7}});
    table.flush();
  }
  EXPECT_EQ(read_file(path), "step,a,\"b, \"\"c\"\"\"\n1,0.5\n2,0.3333333333333333,2\n3,,7\n");
  std::ofstream(path) << "x,y\n1,2\n";
  EXPECT_THROW(CsvFile(path, 1), DataError);
}

TEST_F(LoggingRun, ATableThatCannotBeReadForANewNameIsLeft) {
  const fs::path path = root_ / "table.csv";
  CsvFile table(path, 0);
  table.write(1, {{"a", 0.5}});
  table.flush();
  fs::rename(path, root_ / "kept.csv");
  EXPECT_THROW(table.write(2, {{"a", 1}, {"b", 2}}), IoError);
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(read_file(root_ / "kept.csv"), "step,a\n1,0.5\n");
}

}  // namespace
}  // namespace reigen::train
