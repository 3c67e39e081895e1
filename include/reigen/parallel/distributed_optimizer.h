// Data parallelism with Horovod's interface: the class wraps any optimizer of torch::optim, and the program calls the
// model itself.
//
//   auto optimizer = reigen::DistributedOptimizer(torch::optim::AdamW(model->parameters(), 1e-3), model, world);
//   optimizer.zero_grad();
//   torch::nll_loss(model->forward(batch.input), batch.target).backward();   // ranks exchange gradients
//   optimizer.step();                                                        // with the average of all ranks
//
// Clipping, as in Horovod:
//   optimizer.synchronize();
//   torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
//   { auto scope = optimizer.skip_synchronize(); optimizer.step(); }
//
// It uses the buckets of data_parallel() (data_parallel.h has the rules for gradients and models); each rank keeps its
// own buffers. With P ranks, and g_r the sum of rank r's gradients over `backward_passes_per_step` backwards,
//   every rank steps with 1/P · sum over r of g_r, or with the strategy's result for all g_r.
// The average is ready when the last of these backwards returns, or at the latest when step() or synchronize() returns.
// A rank that ran fewer backwards, or whose backwards reached no parameter, takes part with the gradients that it has,
// or with zeros. The number of steps must be equal on all ranks. With one rank this class only calls the optimizer, and
// does not detect wrong use.
//
// After Sergeev and Del Balso, https://arxiv.org/abs/1802.05799
// Thread rule: only the thread that runs backward. Ranks may be threads of one process.
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
  std::int64_t backward_passes_per_step = 1;  // at least 1; gradients add up: divide the loss to get their mean
  double bucket_mb = 25;                      // as in DataParallelOptions
  bool overlap = true;                        // as in DataParallelOptions
  StrategyFactory strategy = {};              // how gradients or weights are combined (strategies.h)
  // Gradients are divided by this factor before they are sent and multiplied by it afterwards, so that 16-bit types
  // overflow less often. Unless the factor is 1, this costs two passes over the gradients. A finite number above 0.
  double gradient_predivide_factor = 1;
  bool compare_weights = true;  // as in DataParallelOptions
  bool share_cores = true;      // as in DataParallelOptions
};

struct DistributedOptimizerState;

// While a SkipSynchronize object lives, step() does not synchronise: it steps with the gradients that the caller's
// synchronize() left.
class SkipSynchronize {
 public:
  explicit SkipSynchronize(std::shared_ptr<DistributedOptimizerState> state);
  SkipSynchronize(SkipSynchronize&& other) noexcept = default;
  SkipSynchronize& operator=(SkipSynchronize&&) = delete;  // the assignment would end another guard's scope
  ~SkipSynchronize();

 private:
  std::shared_ptr<DistributedOptimizerState> state_;
};

// The part of the wrapper that does not depend on the optimizer's type. Copies refer to the same optimizer.
class DistributedOptimizerBase {
 public:
  using Closure = std::function<at::Tensor()>;  // runs zero_grad(), forward and backwards; returns the loss

  // The module must outlive this object. Collective and blocking; all ranks take rank 0's values. Throws
  // InvalidArgument as DataParallelBase does, and when the optimizer has a parameter that is not a trainable parameter
  // of the module.
  DistributedOptimizerBase(std::shared_ptr<torch::optim::Optimizer> optimizer, torch::nn::Module& module,
                           Communicator world, const DistributedOptimizerOptions& options);

  // Runs synchronize(), the optimizer's step and the strategy's after_step(). Under skip_synchronize() it leaves out
  // synchronize(), and throws InvalidArgument if the caller has not called synchronize() since the last step.
  void step();
  // The same for an optimizer whose step evaluates the loss itself, by calling `closure`, possibly several times
  // (LBFGS). The gradients and the loss of each evaluation are averaged, so that all ranks make the same decisions.
  // Returns what the optimizer's step returns. Throws InvalidArgument under skip_synchronize(), and with a strategy
  // whose ranks step with their own gradients.
  at::Tensor step(const Closure& closure);

  // The optimizer's zero_grad(). Throws InvalidArgument between a backward and step() or synchronize(), because the
  // other ranks' contributions would be lost. Call it after a backward that threw: it waits for the calls that this
  // backward had started.
  void zero_grad(bool set_to_none = true);

  // Waits until `.grad` holds the averages. If backward did not average the gradients, averages them now. A second call
  // before step() does nothing.
  void synchronize();

  // auto scope = optimizer.skip_synchronize();
  [[nodiscard]] SkipSynchronize skip_synchronize();

  // The data-parallel wrapper that this class uses: for no_sync(), settle(), flat parameters and checkpoints of a
  // strategy. Do not call its synchronize() and after_step(): this class calls them.
  DataParallelBase& parallel();

 private:
  void end_step();

  std::shared_ptr<DistributedOptimizerState> state_;
};

template <class Optimizer>
class DistributedOptimizer : public DistributedOptimizerBase {
 public:
  // model: anything that module_of() takes.
  template <class Model>
  DistributedOptimizer(std::shared_ptr<Optimizer> optimizer, Model& model, Communicator world,
                       const DistributedOptimizerOptions& options = {})
      : DistributedOptimizerBase(optimizer, module_of(model), std::move(world), options),
        wrapped_(std::move(optimizer)) {}
  template <class Model>
  DistributedOptimizer(Optimizer&& optimizer, Model& model, Communicator world,
                       const DistributedOptimizerOptions& options = {})
      : DistributedOptimizer(std::make_shared<Optimizer>(std::move(optimizer)), model, std::move(world), options) {}

  // The wrapped optimizer, for its options and state, and to save it. Call step() and zero_grad() of this object, not
  // of the wrapped optimizer.
  Optimizer& wrapped() const { return *wrapped_; }

 private:
  std::shared_ptr<Optimizer> wrapped_;
};

}  // namespace reigen::parallel

namespace reigen {
using parallel::DistributedOptimizer;
using parallel::DistributedOptimizerOptions;
}  // namespace reigen
