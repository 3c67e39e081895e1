// A user's program: a task and train::run. Each step can take some milliseconds, so that a signal can arrive in the
// middle of a step.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "reigen/nn/init.h"
#include "reigen/train/callback.h"
#include "reigen/train/program.h"

namespace {

struct Net : torch::nn::Module {
  explicit Net(std::int64_t dim)
      : in(register_module("in", torch::nn::Linear(3, dim))), out(register_module("out", torch::nn::Linear(dim, 1))) {}
  torch::nn::Linear in;
  torch::nn::Linear out;
};

class Own : public reigen::train::Task, public reigen::train::DataModule {
 public:
  explicit Own(const reigen::train::Config& config)
      : net_(config.model["dim"]),
        pause_(config.model["slow.step_ms"]),
        power_(config.model.real("power")),
        swings_(config.model.flag("swings")) {}
  Net& module() override { return net_; }
  reigen::data::DatasetPtr training() override { return made(120); }
  reigen::data::DatasetPtr validation() override { return made(30); }
  at::Tensor training_step(const reigen::data::Samples& batch) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_));
    return loss_of(batch);
  }
  // Which checkpoint is the best by `swing` changes all the time, because it is a loss without its leading digits.
  void validation_step(const reigen::data::Samples& batch) override {
    Task::validation_step(batch);
    const double loss = 1e4 * loss_of(batch).item<double>();
    if (swings_) log("swing", loss - std::floor(loss));
  }

 private:
  at::Tensor loss_of(const reigen::data::Samples& batch) {
    return (net_.out(at::tanh(net_.in(batch.input))) - batch.target).abs().pow(power_).mean();
  }
  static reigen::data::DatasetPtr made(std::int64_t count) {
    const at::Tensor input = at::empty({count, 3});
    reigen::nn::fill_uniform(input, "input", 4, 1.0);
    return reigen::data::in_memory(input, input.prod(1, true));
  }

  Net net_;
  std::int64_t pause_;
  double power_;
  bool swings_;
};

// Its state depends on every step and every validation.
class Sums : public reigen::train::Callback {
 public:
  std::string name() const override { return "sums"; }
  void note_loss(reigen::train::Moment&, std::int64_t step, double loss) override {
    losses_ += static_cast<double>(step) * loss;
  }
  void end_validation(reigen::train::Moment&, const reigen::train::Figures& figures) override {
    validations_ += figures.find("swing").value_or(0);
  }
  std::string state() const override { return fmt::format("{} {}", losses_, validations_); }
  void restore(std::string_view state) override {
    std::istringstream in{std::string(state)};
    in >> losses_ >> validations_;
  }

 private:
  double losses_ = 0;
  double validations_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return reigen::train::run<Own>(
      argc, argv,
      {.name = "own",
       .summary = "what only this program trains",
       .defaults = {.run = {.presets = {{.name = "wide",
                                         .meaning = "a wider net",
                                         .values = {{"model.dim", "16", "our paper"},
                                                    {"optim.lr", "0.5", "our paper"}}}}},
                    .train = {.epochs = 2, .global_batch = 12},
                    .optim = {.lr = 1e-2},
                    .model = {.options = {{.key = "dim", .value = 8, .meaning = "width"},
                                          {.key = "power", .value = 2.0, .meaning = "of the loss", .low = 1},
                                          {.key = "swings", .value = false, .meaning = "log a figure that swings"},
                                          {.key = "slow.step_ms", .value = 0, .meaning = "a pause", .low = 0}}}},
       .samples = 120,
       .callbacks = [](const reigen::train::Config&) {
         return std::vector<std::shared_ptr<reigen::train::Callback>>{std::make_shared<Sums>()};
       }});
}
