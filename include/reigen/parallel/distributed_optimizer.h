// Horovod's way into data parallelism: any optimizer of torch::optim, wrapped; the model is called as it is.
//
//   auto optimizer = reigen::DistributedOptimizer(torch::optim::AdamW(model->parameters(), 1e-3), model, world);
//   optimizer.zero_grad();
//   torch::nll_loss(model->forward(batch.input), batch.target).backward();   // gradients travel while it runs
//   optimizer.step();                                                        // with the average of all ranks
//
// Clipping, as in Horovod:
//   optimizer.synchronize();
//   torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
//   { auto scope = optimizer.skip_synchronize(); optimizer.step(); }
//
// Underneath are data_parallel()'s buckets (data_parallel.h says what holds for gradients and for models), with each
// rank's own buffers. P ranks; g_r the sum of rank r's gradients of `backward_passes_per_step` backwards:
//   every rank steps with 1/P · sum over r of g_r, or with what the strategy makes of them.
// The average is there when the last of these backwards returns, and at the latest when step() or synchronize() does. A
// rank whose backwards were fewer, or reached no parameter, takes part with what it has, or zeros: the number of steps
// is what must be equal. Errors of use are found where there is more than one rank; alone it is the optimizer itself.
//
// After Sergeev and Del Balso, https://arxiv.org/abs/1802.05799
// Thread rule: one thread at a time, the one that runs backward. Ranks may be threads of one process.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "reigen/comm/communicator.h"
#include "reigen/parallel/data_parallel.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace reigen::parallel {

struct DistributedOptimizerOptions {
  std::int64_t backward_passes_per_step = 1;  // at least 1; they add up: divide the loss for their mean
  double bucket_mb = 25;                      // as in DataParallelOptions
  bool overlap = true;                        // as there
  StrategyFactory strategy = {};              // how gradients, or weights, are brought together (strategies.h)
  // Gradients are divided by it before they travel and multiplied behind: 16-bit types overflow less. Two passes unless
  // 1. A finite number above 0.
  double gradient_predivide_factor = 1;
  bool compare_weights = true;  // as in DataParallelOptions
  bool share_cores = true;      // as there
};

struct DistributedOptimizerState;

// While one lives, step() steps with what synchronize() left.
class SkipSynchronize {
 public:
  explicit SkipSynchronize(std::shared_ptr<DistributedOptimizerState> state);
  SkipSynchronize(SkipSynchronize&& other) noexcept = default;
  SkipSynchronize& operator=(SkipSynchronize&&) = delete;  // would end one guard's scope from within another's
  ~SkipSynchronize();

 private:
  std::shared_ptr<DistributedOptimizerState> state_;
};

// The part that does not depend on the optimizer's type. Copies are the same optimizer.
class DistributedOptimizerBase {
 public:
  using Closure = std::function<at::Tensor()>;  // zero_grad(), forward, backwards; gives the loss

  // The module must outlive this object. Blocking; all values become rank 0's. Throws InvalidArgument as
  // DataParallelBase does, and on a parameter of the optimizer's that the module does not train.
  DistributedOptimizerBase(std::shared_ptr<torch::optim::Optimizer> optimizer, torch::nn::Module& module,
                           Communicator world, const DistributedOptimizerOptions& options);

  // synchronize(), the optimizer's step, the strategy's after_step(). Throws InvalidArgument under skip_synchronize()
  // without a synchronize() before.
  void step();
  // The same for optimizers that evaluate the loss themselves, several times if they like (LBFGS). Each evaluation is
  // averaged, the loss too, so that all ranks decide alike. Gives what the optimizer's step gives. Not under
  // skip_synchronize().
  at::Tensor step(const Closure& closure);

  // The optimizer's. Throws InvalidArgument between a backward and step() or synchronize(): what the other ranks gave
  // would be lost. Behind a backward that threw it is the way on; it waits for what was sent.
  void zero_grad(bool set_to_none = true);

  // Waits until gradients are averages, and sees to it if backward did not. A second call before step() does nothing.
  void synchronize();

  // auto scope = optimizer.skip_synchronize();
  [[nodiscard]] SkipSynchronize skip_synchronize();

  // For no_sync(), settle(), flat parameters and checkpoints of a strategy. Its synchronize() and after_step() are
  // called here.
  DataParallelBase& parallel();

 private:
  void end_step();

  std::shared_ptr<DistributedOptimizerState> state_;
};

template <class Optimizer>
class DistributedOptimizer : public DistributedOptimizerBase {
 public:
  // model: what module_of() takes.
  template <class Model>
  DistributedOptimizer(std::shared_ptr<Optimizer> optimizer, Model& model, Communicator world,
                       const DistributedOptimizerOptions& options = {})
      : DistributedOptimizerBase(optimizer, module_of(model), std::move(world), options),
        wrapped_(std::move(optimizer)) {}
  template <class Model>
  DistributedOptimizer(Optimizer&& optimizer, Model& model, Communicator world,
                       const DistributedOptimizerOptions& options = {})
      : DistributedOptimizer(std::make_shared<Optimizer>(std::move(optimizer)), model, std::move(world), options) {}

  // For options, state and saving; step and zero through this object.
  Optimizer& wrapped() const { return *wrapped_; }

 private:
  std::shared_ptr<Optimizer> wrapped_;
};

}  // namespace reigen::parallel

namespace reigen {
using parallel::DistributedOptimizer;
using parallel::DistributedOptimizerOptions;
}  // namespace reigen
