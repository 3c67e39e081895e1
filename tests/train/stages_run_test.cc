// Runs with stages (mesh.pp) of a task of one's own whose units have skip connections: every cut, and the check beside
// one process, with batches whose last one has a single sample.
#include <ATen/ops/cat.h>

#include "reigen/nn/skips.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

struct DownImpl : torch::nn::Module {
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(6, 16));
  // The first output is computed from the second one.
  nn::Carry forward(const at::Tensor& x) {
    const at::Tensor y = at::tanh(fc(x));
    return {y * y, y};
  }
};
struct MiddleImpl : torch::nn::Module {
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(16, 16));
  at::Tensor forward(const at::Tensor& x) { return at::tanh(fc(x)); }
};
struct UpImpl : torch::nn::Module {
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(32, 4));
  at::Tensor forward(const nn::Carry& in) { return fc(at::cat({in[0], in[1]}, 1)); }
};

struct SkipNet : torch::nn::Module {
  std::shared_ptr<DownImpl> down = register_module("down", std::make_shared<DownImpl>());
  std::shared_ptr<MiddleImpl> middle = register_module("middle", std::make_shared<MiddleImpl>());
  std::shared_ptr<MiddleImpl> more = register_module("more", std::make_shared<MiddleImpl>());
  std::shared_ptr<UpImpl> up = register_module("up", std::make_shared<UpImpl>());
  std::vector<nn::Unit> units{nn::Unit("down", down), nn::Unit("middle", middle), nn::Unit("more", more),
                              nn::Unit("up", up)};
  std::vector<nn::Skip> skips{{"down", "up"}};
  at::Tensor forward(const at::Tensor& x) { return nn::fold(units, x, skips); }
};

class SkipTask : public Task, public DataModule {
 public:
  SkipTask() { net_.to(at::kDouble); }
  torch::nn::Module& module() override { return net_; }
  std::vector<nn::Unit> units() override { return net_.units; }
  std::vector<nn::Skip> skips() override { return net_.skips; }
  data::DatasetPtr training() override { return made_data(195, at::kDouble, "train"); }
  data::DatasetPtr validation() override { return made_data(50, at::kDouble, "test"); }
  at::Tensor training_step(const data::Samples& batch) override {
    return at::cross_entropy_loss(net_.forward(batch.input), batch.target);
  }
  void validation_step(const data::Samples& batch) override {
    const at::Tensor scores = net_.forward(batch.input);
    log("test_accuracy", accuracy(scores, batch.target));
    log("test_loss", at::cross_entropy_loss(scores, batch.target));
  }

 private:
  SkipNet net_;
};

class StagesRun : public TrainerTest {
 protected:
  template <class Second = SkipTask>
  std::string train(int ranks, const Config& run) {
    std::string said;
    run_threads(ranks, [&](Communicator& world) {
      SkipTask task;
      Trainer(task, world,
              {.config = run,
               .write = [&](const std::string& text) { said += text + "\n"; },
               .make_task = [] { return std::make_shared<Second>(); }})
          .fit();
    });
    return said;
  }
};

TEST_F(StagesRun, SkipConnectionsOfATaskTrainAsInOneProcess) {
  Config one = config("one");
  train(1, one);
  const std::vector<double> expected = losses("one");
  ASSERT_EQ(expected.size(), 9U);
  const struct {
    int ranks;
    int pp;
    const char* cut;
    const char* schedule = "1f1b";
    int virtual_stages = 1;
    int recomputed = 0;
  } kRuns[] = {{2, 2, "size"},           {3, 3, "count"},
               {4, 4, "count", "zb_h1"}, {4, 2, "count", "zb_v", 2},
               {2, 2, "time", "gpipe"},  {4, 4, "time", "1f1b", 1, 1}};
  for (const auto& [ranks, pp, cut, schedule, virtual_stages, recomputed] : kRuns) {
    const std::string name = fmt::format("{}_{}_{}_{}", ranks, pp, cut, schedule);
    Config run = config(name);
    run.mesh.pp = pp;
    run.mesh.cut = cut;
    run.mesh.schedule = schedule;
    run.mesh.virtual_stages = virtual_stages;
    run.train.micro_batch = 20;
    run.train.activation_checkpoint = recomputed;
    run.train.verify = 4;  // steps of 97, 97, 1 and 97 samples
    const std::string said = train(ranks, run);
    EXPECT_THAT(
        said, AllOf(HasSubstr("stages: down"), HasSubstr("verified: 4 steps of this layout are those of one process")))
        << name;
    const std::vector<double> found = losses(name);
    ASSERT_EQ(found.size(), expected.size()) << name;
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9) << name << " step " << i;
  }
}

struct StartsOtherwise : SkipTask {
  void initialize(std::uint64_t seed) override {
    SkipTask::initialize(seed);
    const at::NoGradGuard no_grad;
    module().named_parameters()["up.fc.bias"].fill_(2);
  }
};
struct OtherLoss : SkipTask {
  at::Tensor training_step(const data::Samples& batch) override { return SkipTask::training_step(batch) + 1; }
};
struct OtherUnits : SkipTask {
  std::vector<nn::Unit> units() override { return {SkipTask::units()[0]}; }
};

TEST_F(StagesRun, ASecondModelThatIsAnotherIsNamed) {
  Config run = config("differs");
  run.mesh.pp = 2;
  run.train.micro_batch = 20;
  run.train.verify = 2;
  const auto refusal = [&](auto train_it) {
    fs::remove_all(root_ / "differs");
    try {
      train_it();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration) << error.what();
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal([&] { train<StartsOtherwise>(4, run); }),
              HasSubstr("step 1: the first value of up.fc.bias differs on rank 2 (pp 1, dp_shard 0)"));
  EXPECT_THAT(refusal([&] { train<OtherLoss>(4, run); }),
              HasSubstr("step 1: the loss differs on rank 0 (pp 0, dp_shard 0)"));
  EXPECT_THAT(refusal([&] { train<OtherUnits>(2, run); }),
              AllOf(HasSubstr("TrainerOptions::make_task makes another model"), HasSubstr("got: units down"),
                    HasSubstr("units down, middle, more, up")));
}

// Work before the first unit would be lost: the ranks of the first stage do not do it.
TEST_F(StagesRun, WorkBeforeTheFirstUnitIsRefused) {
  struct Scales : SkipTask {
    at::Tensor training_step(const data::Samples& batch) override {
      return SkipTask::training_step({.input = batch.input * 2, .target = batch.target});
    }
  };
  Config run = config("scales");
  run.mesh.pp = 2;
  const auto fit = [&] {
    run_threads(2, [&](Communicator& world) {
      Scales task;
      Trainer(task, world, {.config = run}).fit();
    });
  };
  EXPECT_THAT(fit, ThrowsMessage<Error>(AllOf(HasSubstr("does not give its first unit, down, the input of the step"),
                                              HasSubstr("compute nothing before the first unit"))));
}

// A task that forgets its skip connections.
TEST_F(StagesRun, AUnitThatGetsTooMuchIsNamed) {
  struct Forgets : SkipTask {
    std::vector<nn::Skip> skips() override { return {}; }
  };
  Config run = config("forgets");
  run.mesh.pp = 2;
  const auto fit = [&] {
    run_threads(2, [&](Communicator& world) {
      Forgets task;
      Trainer(task, world, {.config = run}).fit();
    });
  };
  EXPECT_THAT(fit, ThrowsMessage<Error>(
                       AllOf(HasSubstr("[unit middle] 2 tensors came to a forward of one"), HasSubstr("Task::skips"))));
}

// Rank 1 of a file's schedule does the forwards of its micro-batches in an order of its own. The last batch of an epoch
// has fewer samples than the file has micro-batches. The run's directory keeps the file.
TEST_F(StagesRun, AScheduleOfAFileInAnyOrderIsVerified) {
  std::ofstream(root_ / "schedule.txt") << "ranks 2\nstages 2\nmicro_batches 3\nplacement looped\n"
                                           "rank 0: F0.2 F0.0 F0.1 B0.0 B0.2 B0.1\n"
                                           "rank 1: F1.0 F1.2 B1.0 F1.1 B1.2 B1.1\n";
  Config run = config("file");
  run.mesh.pp = 2;
  run.mesh.schedule = (root_ / "schedule.txt").string();
  run.train.global_batch = 97;
  run.train.micro_batch = 33;
  run.train.verify = 3;
  EXPECT_THAT(train(2, run), HasSubstr("verified: 3 steps of this layout are those of one process"));
  Config one = config("one");
  train(1, one);
  const std::vector<double> found = losses("file"), expected = losses("one");
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9) << i;
  EXPECT_EQ(read_file(root_ / "file" / "schedule.txt"), read_file(root_ / "schedule.txt"));
  EXPECT_THAT(read_file(root_ / "file" / "config.toml"), HasSubstr((root_ / "schedule.txt").string()));
  const auto summary = nlohmann::json::parse(read_file(root_ / "file" / "summary.json"));
  for (const auto& bytes : summary["memory_bytes"]["activations"]["by_rank"]) EXPECT_GT(bytes.get<std::int64_t>(), 0);

  // What does not fit is refused before anything is written.
  const auto refusal = [&](std::int64_t micro_batch) {
    Config other = config("other");
    other.mesh = run.mesh;
    other.train.micro_batch = micro_batch;
    std::string text = "accepted";
    try {
      train(2, other);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
      EXPECT_TRUE(error.is_common());
      text = error.what();
    }
    EXPECT_FALSE(fs::exists(root_ / "other" / "config.toml"));
    return text;
  };
  EXPECT_THAT(refusal(10), AllOf(HasSubstr("schedule.txt is for another number of micro-batches"),
                                 HasSubstr("97 samples on each rank in a step, train.micro_batch 10: 10 micro-batches"),
                                 HasSubstr("--train.micro_batch 33")));
  std::ofstream(root_ / "schedule.txt") << "ranks 2\nstages 2\nmicro_batches 3\nplacement looped\nrank 0: F0.x\n";
  EXPECT_THAT(refusal(33), AllOf(HasSubstr("schedule.txt: "), HasSubstr("line 5")));
}

}  // namespace
}  // namespace reigen::train
