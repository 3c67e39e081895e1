// Tasks that make the steps of several optimizers themselves (ManualTask).
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <map>
#include <memory>

#include "reigen/optim/adam.h"
#include "reigen/optim/sgd.h"
#include "reigen/parallel/strategies.h"
#include "reigen/tensor/tensor_files.h"
#include "reigen/train/manual_task.h"
#include "train/small_run.h"

namespace reigen::train {
namespace {

// A net that draws points from noise, and one that judges points. A sample has a point and the noise for another one.
struct Gan : torch::nn::Module {
  Gan()
      : draw1(register_module("draw1", torch::nn::Linear(4, 8))),
        draw2(register_module("draw2", torch::nn::Linear(8, 2))),
        judge1(register_module("judge1", torch::nn::Linear(2, 8))),
        norm(register_module("norm", torch::nn::BatchNorm1d(8))),
        judge2(register_module("judge2", torch::nn::Linear(8, 1))),
        units{nn::Unit("draw1", draw1.ptr()), nn::Unit("draw2", draw2.ptr()), nn::Unit("judge1", judge1.ptr()),
              nn::Unit("judge2", judge2.ptr())} {
    norm->eval();
    to(at::kDouble);
  }
  at::Tensor draw(const at::Tensor& x) { return nn::call(units[1], at::tanh(nn::call(units[0], x.narrow(1, 2, 4)))); }
  at::Tensor judge(const at::Tensor& points) { return nn::call(units[3], at::tanh(nn::call(units[2], points))); }

  torch::nn::Linear draw1, draw2, judge1;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear judge2;
  std::vector<nn::Unit> units;
};

at::Tensor loss_of(const at::Tensor& scores, double label) {
  return at::binary_cross_entropy_with_logits(scores, at::full_like(scores, label));
}

// How often the drawing net steps, and what else a test changes.
struct How {
  std::int64_t draws_every = 1;
  std::function<std::vector<PartOptimizer>(std::vector<PartOptimizer>)> change = {};
  std::function<void(ManualSteps&, std::int64_t call)> before = {};
  double poison = 1;  // by which the loss of the fifth call is multiplied
};

class GanTask : public ManualTask, public DataModule {
 public:
  explicit GanTask(How how = {}) : how_(std::move(how)) {}
  torch::nn::Module& module() override { return gan_; }
  std::vector<nn::Unit> units() override { return gan_.units; }
  data::DatasetPtr training() override { return made_data(96, at::kDouble, "train"); }
  std::vector<PartOptimizer> optimizers(const Config&) override {
    std::vector<PartOptimizer> parts = {
        {"judge", {"judge*", "norm.*"}, {.rule = optim::AdamOptions{.lr = 0.02}}},
        {"draw", {"draw*"}, {.rule = optim::SGDOptions{.lr = 0.1, .momentum = 0.9}, .rate = [](std::int64_t step) {
                               return 0.1 / static_cast<double>(step + 1);
                             }}}};
    return how_.change ? how_.change(std::move(parts)) : parts;
  }
  at::Tensor manual_step(const data::Samples& batch, ManualSteps& steps) override {
    ++calls_;
    if (how_.before) how_.before(steps, calls_);
    const at::Tensor drawn = gan_.draw(batch.input);
    const double poison = calls_ == 5 ? how_.poison : 1;
    const at::Tensor real = loss_of(gan_.judge(batch.input.narrow(1, 0, 2)), 1) * poison;
    steps.backward(real);
    const at::Tensor fake = loss_of(gan_.judge(drawn.detach()), 0);
    steps.backward(fake);
    steps.step("judge");
    const at::Tensor fooled = loss_of(gan_.judge(drawn), 1);
    if (calls_ % how_.draws_every == 0) {
      steps.backward(fooled);
      steps.step("draw");
      steps.zero_grad("judge");
    }
    log("fooled", fooled);
    return real + fake;
  }

 private:
  How how_;
  Gan gan_;
  std::int64_t calls_ = 0;
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
  void run(int ranks, const Config& config, const How& how = {}) {
    output_.clear();
    run_threads(ranks,
                [&](const Communicator& world) {
                  GanTask task(how);
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
          EXPECT_LT(difference(expected.weights, weights(name)), 1e-12);
        }
      }
    }
  }
}

// Four steps, and two more after a resume on the same ranks and on others.
TEST_F(ManualTaskRun, GoesOnFromACheckpointWithTheStepsOfEachOptimizer) {
  const How how{.draws_every = 2};
  for (const std::string shard : {"none", "gradients"}) {
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
      run(2, shaped(name, 4), how);
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
  for (const double poison : {std::numeric_limits<double>::quiet_NaN(), 1e300}) {
    const std::string name = std::isnan(poison) ? "nan" : "inf";
    Config config = config_of_gan(name);
    config.train.clip_norm = std::isnan(poison) ? 0 : 1;
    const std::string text = error_of(config, {.poison = poison * 1e300});
    EXPECT_EQ(code_, ExitCode::kNotANumber) << text;
    EXPECT_THAT(text, HasSubstr("of step 5 is not a finite number"));
    config.run.dir += "back";
    config.train.not_finite = "rollback";
    config.checkpoint.every = "2";
    run(2, config, {.poison = poison * 1e300});
    EXPECT_THAT(output_, HasSubstr("that batch will be left out"));
  }
}

TEST_F(ManualTaskRun, WhatDoesNotGoWithItIsRefused) {
  const std::vector<std::pair<std::function<void(Config&)>, std::string>> options = {
      {[](Config& c) { c.train.micro_batch = 8; }, "train.micro_batch"},
      {[](Config& c) { c.train.not_finite = "skip"; }, "train.not_finite skip"},
      {[](Config& c) { c.train.verify = 1; }, "train.verify"},
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
