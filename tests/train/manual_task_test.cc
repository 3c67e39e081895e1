// Tasks that make the steps of several optimizers themselves (ManualTask).
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "reigen/nn/autocast.h"
#include "reigen/optim/adam.h"
#include "reigen/optim/sgd.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/parallel/strategies.h"
#include "reigen/tensor/tensor_files.h"
#include "reigen/train/manual_task.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

// A net that draws points from noise, and one that judges points. A sample has a point and the noise for another one.
struct Gan : torch::nn::Module {
  explicit Gan(at::ScalarType type = at::kDouble, bool with_norm = false)
      : draw1(register_module("draw1", torch::nn::Linear(4, 8))),
        draw2(register_module("draw2", torch::nn::Linear(8, 2))),
        judge1(register_module("judge1", torch::nn::Linear(2, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        judge2(register_module("judge2", torch::nn::Linear(8, 1))),
        units{nn::Unit("draw1", draw1.ptr()), nn::Unit("draw2", draw2.ptr()), nn::Unit("judge1", judge1.ptr()),
              nn::Unit("judge2", judge2.ptr())},
        normalises(with_norm) {
    to(type);
  }
  at::Tensor draw(const at::Tensor& x) { return nn::call(units[1], at::tanh(nn::call(units[0], x.narrow(1, 2, 4)))); }
  at::Tensor judge(const at::Tensor& points) {
    at::Tensor seen = nn::call(units[2], points);
    if (normalises) seen = norm(seen);
    return nn::call(units[3], at::tanh(seen));
  }

  torch::nn::Linear draw1, draw2, judge1;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear judge2;
  std::vector<nn::Unit> units;
  bool normalises;
};

at::Tensor loss_of(const at::Tensor& scores, double label) {
  return at::binary_cross_entropy_with_logits(scores, at::full_like(scores, label));
}

// How often the drawing net steps, and what else a test changes.
struct How {
  std::int64_t draws_every = 1;
  std::function<std::vector<PartOptimizer>(std::vector<PartOptimizer>)> change = {};
  double poison = 1;        // by which the loss of the fifth step is multiplied
  bool poisons_all = true;  // false: only the loss that the run shows
  std::int64_t samples = 96;
  at::ScalarType type = at::kDouble;
  bool normalises = false;  // batch norm in training mode
};

class GanTask : public ManualTask, public DataModule {
 public:
  explicit GanTask(How how = {}) : how_(std::move(how)), gan_(how_.type, how_.normalises) {}
  torch::nn::Module& module() override { return gan_; }
  std::vector<nn::Unit> units() override { return gan_.units; }
  data::DatasetPtr training() override { return made_data(how_.samples, how_.type, "train"); }
  std::vector<PartOptimizer> optimizers(const Config&) override {
    std::vector<PartOptimizer> parts = {
        {"judge", {"judge*", "norm.*"}, {.rule = optim::AdamOptions{.lr = 0.02}}},
        {"draw", {"draw*"}, {.rule = optim::SGDOptions{.lr = 0.1, .momentum = 0.9}, .rate = [](std::int64_t step) {
                               return 0.1 / static_cast<double>(step + 1);
                             }}}};
    return how_.change ? how_.change(std::move(parts)) : parts;
  }
  at::Tensor manual_step(const data::Samples& batch, ManualSteps& steps) override {
    const at::Tensor drawn = gan_.draw(batch.input);
    const double poison = steps.done() == 4 ? how_.poison : 1;
    const at::Tensor judged = loss_of(gan_.judge(batch.input.narrow(1, 0, 2)), 1);
    const at::Tensor real = judged * poison;
    steps.backward(how_.poisons_all ? real : judged);
    const at::Tensor fake = loss_of(gan_.judge(drawn.detach()), 0);
    steps.backward(fake);
    steps.step("judge");
    const at::Tensor fooled = loss_of(gan_.judge(drawn), 1);
    if ((steps.done() + 1) % how_.draws_every == 0) {
      steps.backward(fooled);
      steps.step("draw");
      steps.zero_grad("judge");
    }
    log("fooled", fooled);
    mean_ = steps.mean(real + fake);
    return real + fake;
  }
  double mean() const { return mean_; }

 private:
  How how_;
  Gan gan_;
  double mean_ = 0;  // of the last loss, over all ranks
};

using Values = std::map<std::string, at::Tensor>;

class ManualTaskRun : public TrainerTest {
 protected:
  // The whole data are one batch, so that a step does not depend on their order.
  Config config_of_gan(const std::string& directory, std::int64_t steps = 6) const {
    Config config = TrainerTest::config(directory);
    config.train.global_batch = 96;
    config.train.epochs = steps;
    return config;
  }
  // Keeps the last mean that the task of a rank saw.
  struct Keep {
    ~Keep() { means[static_cast<std::size_t>(rank)] = task.mean(); }
    const GanTask& task;
    std::vector<double>& means;
    int rank;
  };
  void run(int ranks, const Config& config, const How& how = {}) {
    output_.clear();
    means_.assign(static_cast<std::size_t>(ranks), 0);
    run_threads(ranks,
                [&](const Communicator& world) {
                  GanTask task(how);
                  const Keep keep{task, means_, world.rank()};
                  Trainer(task, task, world,
                          {.name = "gan", .config = config, .write = [&](std::string_view text) { output_ += text; }})
                      .fit();
                },
                {.backend = backend_});
  }
  Values weights(const std::string& directory, const char* file = "model.safetensors") const {
    Values values;
    for (const tensor::NamedTensor& one : tensor::read_tensors(root_ / directory / file)) values[one.name] = one.tensor;
    return values;
  }
  std::string error_of(const Config& config, const How& how = {}, int ranks = 2) {
    try {
      run(ranks, config, how);
    } catch (const Error& error) {
      code_ = error.exit_code();
      return error.what();
    }
    return "no error";
  }
  ExitCode code_ = ExitCode::kOk;
  std::vector<double> means_;
};

double difference(const Values& a, const Values& b) {
  double most = 0;
  for (const auto& [name, value] : a) {
    if (!value.is_floating_point()) continue;
    most = std::max(most, (value - b.at(name)).abs().max().item<double>());
  }
  return most;
}

// The same training with the optimizers of LibTorch.
struct HandLoop {
  std::vector<double> losses;
  Values weights;
};
HandLoop by_hand(std::int64_t steps, std::int64_t draws_every) {
  Gan gan;
  nn::initialize(gan, static_cast<std::uint64_t>(Config{}.train.seed));
  std::vector<at::Tensor> of_judge = gan.judge1->parameters();
  for (const at::Tensor& one : gan.judge2->parameters()) of_judge.push_back(one);
  std::vector<at::Tensor> of_draw = gan.draw1->parameters();
  for (const at::Tensor& one : gan.draw2->parameters()) of_draw.push_back(one);
  torch::optim::Adam judge(of_judge, torch::optim::AdamOptions(0.02));
  torch::optim::SGD draw(of_draw, torch::optim::SGDOptions(0.1).momentum(0.9));
  std::vector<std::int64_t> indices(96);
  for (std::int64_t i = 0; i < 96; ++i) indices[static_cast<std::size_t>(i)] = i;
  const at::Tensor input = made_data(96, at::kDouble, "train")->gather(indices).input;
  HandLoop result;
  for (std::int64_t step = 0; step < steps; ++step) {
    judge.zero_grad();
    draw.zero_grad();
    const at::Tensor drawn = gan.draw(input);
    const at::Tensor loss = loss_of(gan.judge(input.narrow(1, 0, 2)), 1) + loss_of(gan.judge(drawn.detach()), 0);
    loss.backward();
    judge.step();
    result.losses.push_back(loss.item<double>());
    if ((step + 1) % draws_every != 0) continue;
    loss_of(gan.judge(drawn), 1).backward();
    static_cast<torch::optim::SGDOptions&>(draw.param_groups()[0].options()).lr(0.1 / static_cast<double>(step + 1));
    draw.step();
  }
  for (const auto& item : gan.named_parameters()) result.weights[item.key()] = item.value().detach().clone();
  return result;
}

TEST_F(ManualTaskRun, TrainsAsALoopWithTheOptimizersOfLibTorch) {
  for (const std::int64_t draws_every : {1, 3}) {
    const HandLoop expected = by_hand(6, draws_every);
    for (const char* backend : {"auto", "tcp"}) {
      backend_ = backend;
      for (const int ranks : {1, 2, 3}) {
        for (const std::string shard : {"none", "optimizer", "gradients", "parameters"}) {
          if (ranks == 1 && shard != "none") continue;
          const std::string name = backend + std::to_string(ranks) + shard + std::to_string(draws_every);
          SCOPED_TRACE(name);
          Config config = config_of_gan(name);
          config.parallel.shard = shard;
          run(ranks, config, {.draws_every = draws_every});
          const std::vector<double> got = losses(name);
          ASSERT_EQ(got.size(), expected.losses.size());
          for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected.losses[i], 1e-12) << i;
          for (const double mean : means_) EXPECT_EQ(mean, got.back());
          EXPECT_LT(difference(expected.weights, weights(name)), 1e-12);
        }
      }
    }
  }
}

// 65 samples in batches of 32: the last batch has one sample, so two ranks have none. Also with batch norm of each
// rank.
TEST_F(ManualTaskRun, UnevenRanksGiveTheWeightsOfOne) {
  const auto shaped = [&](const std::string& name, const std::string& shard) {
    Config config = config_of_gan(name, 2);
    config.train.global_batch = 32;
    config.parallel.shard = shard;
    return config;
  };
  const How how{.draws_every = 2, .samples = 65};
  run(1, shaped("one", "none"), how);
  for (const char* backend : {"auto", "tcp"}) {
    backend_ = backend;
    for (const std::string shard : {"none", "optimizer", "gradients", "parameters"}) {
      const std::string name = backend + shard;
      run(3, shaped(name, shard), how);
      EXPECT_LT(difference(weights("one"), weights(name)), 1e-12) << name;
      EXPECT_EQ(losses(name).size(), 6U);
    }
  }
  How with_norm = how;
  with_norm.normalises = true;
  with_norm.samples = 64;  // batch norm needs more than one sample
  run(3, shaped("norm", "none"), with_norm);
  EXPECT_EQ(losses("norm").size(), 4U);
}

TEST_F(ManualTaskRun, AForwardAfterAStepInBf16TakesTheNewWeights) {
  Config config = config_of_gan("bf16", 2);
  config.train.precision = "bf16";
  run(1, config, {.type = at::kFloat});
  Gan gan(at::kFloat);
  nn::initialize(gan, static_cast<std::uint64_t>(config.train.seed));
  torch::optim::Adam judge(
      std::vector<at::Tensor>{gan.judge1->weight, gan.judge1->bias, gan.judge2->weight, gan.judge2->bias},
      torch::optim::AdamOptions(0.02));
  std::vector<std::int64_t> indices(96);
  for (std::int64_t i = 0; i < 96; ++i) indices[static_cast<std::size_t>(i)] = i;
  const at::Tensor input = made_data(96, at::kFloat, "train")->gather(indices).input;
  const auto fooled = [&] {
    const nn::Autocast bf16;
    return loss_of(gan.judge(gan.draw(input)), 1);
  };
  at::Tensor loss;
  {
    const nn::Autocast bf16;
    loss = loss_of(gan.judge(input.narrow(1, 0, 2)), 1) + loss_of(gan.judge(gan.draw(input).detach()), 0);
  }
  const double before = fooled().item<double>();
  loss.backward();
  judge.step();
  const double after = fooled().item<double>();
  EXPECT_GT(std::abs(after - before), 4e-3);
  EXPECT_NEAR(lines_of(root_ / "bf16")[0]["fooled"], after, std::abs(after - before) / 4);
}

// Two nets in one wrapper, and a loop by hand.
TEST(Optimizers, OfPartsStepTheirOwnParametersInALoopByHand) {
  run_threads(2, [](Communicator& world) {
    const std::vector<std::string> of_draw = {"draw1.*"};
    const std::vector<std::string> others = {"*"};
    for (const auto shard : {parallel::Shard::kNone, parallel::Shard::kParameters}) {
      Gan gan;
      nn::initialize(gan, 1);
      auto parallel = data_parallel(gan, world, {.shard = shard, .units = gan.units, .optimizers = {of_draw, others}});
      optim::Adam draw(parallel.parameters(of_draw), {.lr = 0.1});
      optim::SGD judge(parallel.parameters(others), {.lr = 0.1});
      std::set<std::string> names;
      for (const tensor::NamedTensor& one : draw.state()) names.insert(one.name.substr(0, one.name.rfind('.')));
      EXPECT_EQ(names, (std::set<std::string>{"draw1.weight", "draw1.bias"}));  // the first list has them
      const at::Tensor before = gan.judge1->weight.detach().clone();
      const at::Tensor drawn_before = gan.draw1->weight.detach().clone();
      parallel.prepare_forward();
      const at::Tensor input =
          made_data(8, at::kDouble, "train")->gather(std::vector<std::int64_t>{world.rank()}).input;
      loss_of(gan.judge(gan.draw(input)), 1).backward();
      draw.step();
      EXPECT_TRUE(at::equal(before, gan.judge1->weight));
      EXPECT_FALSE(at::equal(drawn_before, gan.draw1->weight));
      judge.step();
      EXPECT_FALSE(at::equal(before, gan.judge1->weight));
      EXPECT_THROW((void)parallel.parameters({"draw*"}), InvalidArgument);
      draw.zero_grad();
      judge.zero_grad();
      world.barrier();
    }
  });
}

// Five steps, and one more after a resume on the same ranks and on others.
TEST_F(ManualTaskRun, GoesOnFromACheckpointWithTheStepsOfEachOptimizer) {
  const How how{.draws_every = 2};
  for (const std::string shard : {"none", "gradients", "parameters"}) {
    const auto shaped = [&](const std::string& name, std::int64_t steps) {
      Config config = config_of_gan(shard + name, 6);
      config.parallel.shard = shard;
      config.train.max_steps = steps;
      config.optim.ema_decay = 0.9;
      return config;
    };
    run(2, shaped("whole", 6), how);
    for (const int ranks : {2, 3}) {
      const std::string name = "resumed" + std::to_string(ranks);
      run(2, shaped(name, 5), how);
      Config rest = shaped(name, 6);
      rest.run.resume = "true";
      run(ranks, rest, how);
      for (const char* file : {"model.safetensors", "model_ema.safetensors"}) {
        const double apart = difference(weights(shard + "whole", file), weights(shard + name, file));
        EXPECT_LE(apart, ranks == 2 ? 0 : 1e-12) << shard << " " << ranks << " " << file;
      }
      EXPECT_GT(difference(weights(shard + "whole"), weights(shard + "whole", "model_ema.safetensors")), 1e-4);
    }
  }
}

TEST_F(ManualTaskRun, AResumeWithOtherOptimizersIsRefused) {
  using Parts = std::vector<PartOptimizer>;
  Config config = config_of_gan("run", 4);
  config.train.max_steps = 2;
  run(2, config);
  config.train.max_steps = 4;
  config.run.resume = "true";
  const std::vector<std::function<Parts(Parts)>> changes = {
      [](Parts p) { return p[0].name = "critic", p; },
      [](Parts p) { return p[0].optimizer.rule = optim::SGDOptions{.lr = 0.1}, p; },
      [](Parts p) { return std::swap(p[0], p[1]), p; }};
  for (const auto& change : changes) {
    EXPECT_THAT(error_of(config, {.change = change}), HasSubstr("task.optimizers differs from the run"));
    EXPECT_EQ(code_, ExitCode::kConfiguration);
  }
  const auto without_momentum = [](Parts p) { return p[1].optimizer.rule = optim::SGDOptions{.lr = 0.1}, p; };
  EXPECT_THAT(error_of(config, {.change = without_momentum}), HasSubstr("momentum"));
}

TEST_F(ManualTaskRun, WritesTheRatesAndTheNormOfItsSteps) {
  Config config = config_of_gan("a", 4);
  config.train.clip_norm = 1e-3;
  run(2, config, {.draws_every = 2});
  const auto lines = lines_of(root_ / "a");
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_FALSE(lines[0].contains("lr/draw"));
  EXPECT_EQ(lines[3]["lr/draw"], 0.1 / 4);
  for (const auto& line : lines) {
    EXPECT_EQ(line["lr/judge"], 0.02);
    EXPECT_GT(line["grad_norm"], 0.0);
    EXPECT_TRUE(line.contains("fooled"));
  }
  EXPECT_THAT(output_, HasSubstr("the task makes the steps of its optimizers (judge: adam, draw: sgd)"));
}

TEST_F(ManualTaskRun, ALossOrGradientThatIsNotFiniteEndsTheRunOrGoesBack) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // The gradients of the last one are finite: its loss is seen after the steps.
  const std::vector<std::tuple<double, double, bool, std::string>> cases = {
      {kNan, 0, true, "the gradient norm of step 5"},
      {kInfinity, 1, true, "the gradient norm of step 5"},
      {kInfinity, 0, false, "the loss of step 5"}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [poison, clip, all, what] = cases[i];
    Config config = config_of_gan("poison" + std::to_string(i), 7);
    config.train.clip_norm = clip;
    const How how{.poison = poison, .poisons_all = all};
    EXPECT_THAT(error_of(config, how), AllOf(HasSubstr(what), HasSubstr(all ? "optimizer judge" : "inf")));
    EXPECT_EQ(code_, ExitCode::kNotANumber);
    config.run.dir += "back";
    config.train.not_finite = "rollback";
    config.checkpoint.every = "2";
    run(2, config, how);
    EXPECT_THAT(output_, AllOf(HasSubstr(what), HasSubstr("that batch will be left out")));
    EXPECT_EQ(lines_of(config.run.dir).size(), 7U);
  }
}

TEST_F(ManualTaskRun, WhatDoesNotGoWithItIsRefused) {
  const std::vector<std::pair<std::function<void(Config&)>, std::string>> options = {
      {[](Config& c) { c.train.micro_batch = 8; }, "train.micro_batch"},
      {[](Config& c) { c.train.not_finite = "skip"; }, "train.not_finite skip"},
      {[](Config& c) { c.train.verify = 1; }, "train.verify"},
      {[](Config& c) { c.train.precision = "fp16"; }, "train.precision fp16"},
      {[](Config& c) { c.optim.lr_factors = "draw*: 2"; }, "optim.lr_factors"},
      {[](Config& c) { c.mesh.tp = 2; }, "mesh.tp, mesh.pp or mesh.cp"},
      {[](Config& c) { c.parallel.strategy = parallel::LocalSgdOptions{}; }, "parallel.strategy"},
      {[](Config& c) { c.optim.no_decay = "*.bias"; }, "optim.no_decay"}};
  for (const auto& [change, what] : options) {
    Config config = config_of_gan("refused");
    change(config);
    EXPECT_THAT(error_of(config), AllOf(HasSubstr("the task makes its steps itself"), HasSubstr(what)));
    EXPECT_EQ(code_, ExitCode::kConfiguration) << what;
  }
  using Parts = std::vector<PartOptimizer>;
  const std::vector<std::pair<std::function<Parts(Parts)>, std::string>> parts = {
      {[](Parts) { return Parts(); }, "no optimizer"},
      {[](Parts p) { return p[1].name = "judge", p; }, "occurs twice"},
      {[](Parts p) { return p[1].parameters = {"draw1.*"}, p; }, "parameter draw2.weight"},
      {[](Parts p) { return p[1].parameters.clear(), p; }, "no pattern of parameters"},
      {[](Parts p) { return p[1].parameters.push_back("judge1.weight"), p; }, "judge and draw have it"},
      {[](Parts p) { return p[1].parameters.push_back("drow*"), p; }, "drow*"},
      {[](Parts p) { return p[0].name = "judges", p; }, "did you mean judges?"}};
  for (const auto& [change, what] : parts) {
    EXPECT_THAT(error_of(config_of_gan("refused"), {.change = change}), HasSubstr(what));
    EXPECT_EQ(code_, ExitCode::kConfiguration) << what;
  }
}

}  // namespace
}  // namespace reigen::train
