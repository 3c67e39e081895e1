// Data parallelism with Horovod's interface: DistributedOptimizer wraps any optimizer of torch::optim, and the program
// calls the model itself.
//
//   auto optimizer = reigen::DistributedOptimizer(torch::optim::AdamW(model->parameters(), 1e-3), model, world);
//   optimizer.zero_grad();
//   torch::nll_loss(model->forward(batch.input), batch.target).backward();   // ranks exchange gradients
//   optimizer.step();                                                        // steps with the average gradients
//
// Clipping, as in Horovod:
//   optimizer.synchronize();
//   torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
//   { auto scope = optimizer.skip_synchronize(); optimizer.step(); }
//
// DistributedOptimizer exchanges gradients in the buckets of data_parallel(); data_parallel.h has the rules for
// gradients and models. Each rank keeps its own buffers. P is the number of ranks, and g_r is the sum of rank r's
// gradients over `backward_passes_per_step` backwards:
//   every rank steps with 1/P · sum over r of g_r, or with the result of the strategy for all g_r
// `.grad` holds the average when the last of these backwards returns. On a rank that ran fewer backwards, or whose
// backwards reached no parameter, step() or synchronize() computes the average. Such a rank contributes the gradients
// that it has, or zeros. The number of steps must be equal on all ranks. If `world` has only one rank, this class only
// calls the optimizer, and does not detect wrong use.
//
// After Sergeev and Del Balso, https://arxiv.org/abs/1802.05799
// Thread rule: only the thread that runs backward may use the optimizer. Ranks may be threads of one process.
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
  std::int64_t backward_passes_per_step = 1;  // at least 1; to step with the mean of the passes, divide the loss by it
  double bucket_mb = 25;                      // as in DataParallelOptions
  bool overlap = true;                        // as in DataParallelOptions
  StrategyFactory strategy = {};              // how gradients or weights are combined (strategies.h)
  // Gradients are divided by this factor before they are sent, and multiplied by the factor afterwards, so that 16-bit
  // types overflow less often. Unless the factor is 1, this costs two passes over the gradients. The factor must be
  // finite and above 0.
  double gradient_predivide_factor = 1;
  bool compare_weights = true;  // as in DataParallelOptions
  bool share_cores = true;      // as in DataParallelOptions
};

struct DistributedOptimizerState;

// While a SkipSynchronize object lives, step() does not call synchronize(). The caller has called synchronize() before,
// and may have changed the averaged gradients since then, for example by clipping.
class SkipSynchronize {
 public:
  explicit SkipSynchronize(std::shared_ptr<DistributedOptimizerState> state);
  SkipSynchronize(SkipSynchronize&& other) noexcept = default;
  SkipSynchronize& operator=(SkipSynchronize&&) = delete;  // it would end the scope of the object on its left
  ~SkipSynchronize();

 private:
  std::shared_ptr<DistributedOptimizerState> state_;
};

// The part of DistributedOptimizer that does not depend on the type of the wrapped optimizer. Copies refer to the same
// optimizer.
class DistributedOptimizerBase {
 public:
  using Closure = std::function<at::Tensor()>;  // runs zero_grad(), forwards and backwards; returns the loss

  // The module must outlive this object. Collective and blocking; all ranks take rank 0's values. Throws
  // InvalidArgument in the same cases as the constructor of DataParallelBase. Also throws it when the optimizer has a
  // parameter that requires a gradient and is not a parameter of the module.
  DistributedOptimizerBase(std::shared_ptr<torch::optim::Optimizer> optimizer, torch::nn::Module& module,
                           Communicator world, const DistributedOptimizerOptions& options);

  // Runs synchronize(), the optimizer's step and the strategy's after_step(). While an object that skip_synchronize()
  // returned lives, step() leaves out synchronize(). It then throws InvalidArgument if the caller has not called
  // synchronize() since the last step.
  void step();
  // The same as step(), for an optimizer like LBFGS, whose step itself calls `closure` to evaluate the loss, possibly
  // several times. The gradients and the loss of each evaluation are averaged over the ranks, so that all ranks make
  // the same decisions. Returns the result of the optimizer's step. Throws InvalidArgument while an object that
  // skip_synchronize() returned lives, and with a strategy whose ranks step with their own gradients.
  at::Tensor step(const Closure& closure);

  // Calls the optimizer's zero_grad(). Throws InvalidArgument after a backward and before the step() or synchronize()
  // that follows it, because the other ranks' contributions would be lost. If a backward threw, call zero_grad(): it
  // waits for the calls that this backward had started.
  void zero_grad(bool set_to_none = true);

  // Waits until `.grad` holds the averages. If backward did not average the gradients, synchronize() averages them. A
  // second synchronize() before step() does nothing.
  void synchronize();

  // Returns a SkipSynchronize object, for example: auto scope = optimizer.skip_synchronize();
  [[nodiscard]] SkipSynchronize skip_synchronize();

  // The data-parallel wrapper that this class uses. Use it for no_sync(), settle(), flat parameters (parameters()) and
  // the state of a strategy. Do not call synchronize() or after_step() of the wrapper: this class calls them.
  DataParallelBase& parallel();

 private:
  void end_step();

  std::shared_ptr<DistributedOptimizerState> state_;
};

template <class Optimizer>
class DistributedOptimizer : public DistributedOptimizerBase {
 public:
  // `model` has any type that module_of() (data_parallel.h) accepts.
  template <class Model>
  DistributedOptimizer(std::shared_ptr<Optimizer> optimizer, Model& model, Communicator world,
                       const DistributedOptimizerOptions& options = {})
      : DistributedOptimizerBase(optimizer, module_of(model), std::move(world), options),
        wrapped_(std::move(optimizer)) {}
  template <class Model>
  DistributedOptimizer(Optimizer&& optimizer, Model& model, Communicator world,
                       const DistributedOptimizerOptions& options = {})
      : DistributedOptimizer(std::make_shared<Optimizer>(std::move(optimizer)), model, std::move(world), options) {}

  // The wrapped optimizer. Use it to read or change its options and state, and to save it. Call step() and zero_grad()
  // of this object, not of the wrapped optimizer.
  Optimizer& wrapped() const { return *wrapped_; }

 private:
  std::shared_ptr<Optimizer> wrapped_;
};

}  // namespace reigen::parallel

namespace reigen {
using parallel::DistributedOptimizer;
using parallel::DistributedOptimizerOptions;
}  // namespace reigen
