// A user's program: a task and train::run. Each step can take some milliseconds, so that a signal can arrive in the
// middle of a step.
#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <string>
#include <thread>

#include "reigen/nn/init.h"
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
      : net_(config.model["dim"]), pause_(config.model["slow.step_ms"]), power_(config.model.real("power")) {}
  Net& module() override { return net_; }
  reigen::data::DatasetPtr training() override { return made(120); }
  reigen::data::DatasetPtr validation() override { return made(30); }
  at::Tensor training_step(const reigen::data::Samples& batch) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_));
    return (net_.out(at::tanh(net_.in(batch.input))) - batch.target).abs().pow(power_).mean();
  }

 private:
  static reigen::data::DatasetPtr made(std::int64_t count) {
    const at::Tensor input = at::empty({count, 3});
    reigen::nn::fill_uniform(input, "input", 4, 1.0);
    return reigen::data::in_memory(input, input.prod(1, true));
  }

  Net net_;
  std::int64_t pause_;
  double power_;
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
                                          {.key = "slow.step_ms", .value = 0, .meaning = "a pause", .low = 0}}}},
       .samples = 120});
}
