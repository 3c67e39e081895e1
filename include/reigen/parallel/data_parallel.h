// Data parallelism: every rank holds the whole model and computes on its own samples; gradients are averaged.
//
//   auto parallel = reigen::data_parallel(model, world, {.bucket_mb = 25});
//   auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 1e-3});
//   auto loss = torch::nll_loss(parallel(batch.input), batch.target);
//   loss.backward();         // ranks exchange gradients while it runs; after it, .grad is the average of all ranks
//   optimizer.step();
//
// Wrapping compares the model's parameters and buffers between the ranks and copies rank 0's values to all ranks.
// Gradients lie in flat buckets, in memory that the communicator allocates. A bucket's all_reduce starts when its last
// gradient is ready. All ranks start their buckets in the same order, and the end of backward waits for the last
// bucket. Optimizers of torch::optim work as well as those of reigen::optim, and every kind of zero_grad works.
//
// If a backward reaches a parameter on only some of the ranks, the gradient counts as zero on the other ranks. If it
// reaches a parameter on no rank, the parameter keeps its .grad as it was (undefined: optimizers skip it). This needs
// no option, and nothing hangs. The number of synchronised backwards must be equal on all ranks: a rank whose backward
// would reach no parameter at all, or that has nothing to compute, calls synchronize() instead. Where weights are
// gathered and freed unit by unit (kParameters over a network), the backwards of all ranks must also pass through the
// same units (docs/sharding.md). If a backward throws, catch the error on every rank, call zero_grad() and continue
// with the next forward.
//
// Gradients that torch::autograd::grad() returns are not averaged: it does not accumulate into .grad, so no hook runs.
// backward(create_graph = true) works, but .grad has no graph. A parameter must not be used both inside and outside of
// a reentrant activation checkpoint unless overlap is off.
//
// After Li et al., PyTorch Distributed, https://arxiv.org/abs/2006.15704
// Thread rule: only the thread that runs backward. Ranks may be threads of one process.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/comm/communicator.h"
#include "reigen/parallel/data_parallel_options.h"
#include "reigen/tensor/parameter_range.h"
#include "reigen/tensor/tensor_files.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

// Size and times of one bucket in the last synchronised backward. Times are nanoseconds since 1970 by this machine's
// clock.
struct BucketTimes {
  std::string tag = {};     // the tag of the bucket's calls in Communicator::history()
  std::uint64_t bytes = 0;  // size of the gradients
  std::size_t parameters = 0;
  std::int64_t complete = 0;     // when the call of the bucket started, after its last gradient was ready
  std::int64_t waited_from = 0;  // when this rank began to wait for the bucket, after backward's own work
  std::int64_t waited_to = 0;
};

class GradientReducer;

// While a NoSync object lives, backward only adds up this rank's gradients. The first synchronised backward after its
// destruction averages the sum.
class NoSync {
 public:
  explicit NoSync(std::shared_ptr<GradientReducer> reducer);
  NoSync(NoSync&& other) noexcept = default;
  NoSync& operator=(NoSync&&) = delete;  // the assignment would end another guard's scope
  ~NoSync();

 private:
  std::shared_ptr<GradientReducer> reducer_;
};

// The part of the wrapper that does not depend on the model's type. A program that uses this class alone calls
// prepare_forward() before each forward.
class DataParallelBase {
 public:
  // The module must outlive this object. The constructor is collective and blocking; it costs one all_gather and a
  // broadcast of all values. It throws InvalidArgument on every rank when the models or the options differ between
  // ranks (the error names the first difference and both sides); when the model has no trainable parameter, is wrapped
  // already, or has parameters that are sparse, not floating point or not on the CPU, or that share memory without
  // being tied; when .shard is set together with a strategy that acts on weights; when kGradients or kParameters is set
  // together with any strategy; and when an option is out of range.
  DataParallelBase(torch::nn::Module& module, Communicator world, const DataParallelOptions& options);
  explicit DataParallelBase(std::shared_ptr<GradientReducer> reducer);  // another handle to `reducer`'s wrapper

  // The trainable parameters in flat ranges, for reigen::optim and checkpoints. The ranges may outlive this object.
  const std::vector<ParameterRange>& parameters() const;

  // The ranges of parameters(), and the ranges of frozen parameters that ranks shard (kParameters), for checkpoints of
  // the model.
  std::vector<ParameterRange> weights() const;

  // The tensors that this rank gives to a checkpoint. Of a sharded tensor, each rank of the first replica gives its
  // part; rank 0 gives all other tensors. own_weights() selects from the model's tensors, own() from the given states
  // of an optimizer or an average. The results are handles, not copies.
  //   Pieces model(parallel.own_weights()), states(parallel.own(optimizer.state()));
  std::vector<tensor::NamedTensor> own_weights() const;
  std::vector<tensor::NamedTensor> own(std::vector<tensor::NamedTensor> tensors) const;
  // Reads the weights and buffers of a checkpoint, under its name `group`, into the parts that each rank holds. Any
  // number of ranks with any sharding may have written the checkpoint. Load an optimizer's state after the weights.
  // Collective and blocking. On a failure every rank throws the same Error: it has the exit code of the first rank that
  // failed, and names the tensor or file that did not fit or could not be read. The weights are then undefined until a
  // load() succeeds.
  void load(const checkpoint::Checkpoint& from, std::string_view group = "model");

  // auto guard = parallel.no_sync();
  [[nodiscard]] NoSync no_sync();

  // Takes part in one averaging with the gradients that this rank has now; a missing gradient counts as zeros. Call it
  // instead of backward on a rank whose backward would reach no parameter, or instead of forward and backward on a rank
  // without samples. If gathers() is true, it throws InvalidArgument unless a backward ran before it.
  void synchronize();

  // Sets the number of the step to which the next forward belongs. By default the number counts the synchronised
  // backwards. The number is part of the tag of every call: when a rank has left out a step, its next exchange fails on
  // all ranks with an error that names both steps and the parameters. Under a Join the number must rise by one from one
  // averaging to the next.
  void number_step(std::int64_t step);

  // Call it before each forward (DataParallel's operator() does). After a failed backward it waits for the calls that
  // this backward had started. In training mode, outside of no_sync(), and if the next backward averages gradients, it
  // also synchronises the buffers. Throws InvalidArgument when a parameter was added, removed, replaced, moved,
  // converted or unfrozen since wrapping (the error names it); when after_step() was left out after a step; and when an
  // optimizer that is not from reigen::optim changed weights in common memory.
  void prepare_forward();

  // If the strategy acts on weights, call it after every step of the optimizer (WeightStrategy::after_step()). With
  // other strategies it does nothing.
  void after_step();

  // Makes the model the same on every rank: the buffers (every rank takes rank 0's buffers; with kAverage the mean),
  // and the weights if the strategy lets them differ. Call it before you validate or save. Blocking; every rank calls
  // it.
  void settle();

  // True while the strategy lets each rank step with its own gradients, so that weights and optimizer states differ
  // between ranks.
  bool ranks_differ() const;

  // The state of the strategy, for a checkpoint; see Strategy::state(). Empty when this rank is alone.
  std::map<std::string, at::Tensor> strategy_state() const;
  void load_strategy_state(const std::map<std::string, at::Tensor>& state);

  // The time for which the last synchronised backward waited for communication: inside backward, and after its own
  // work.
  std::chrono::duration<double> last_exposed_communication() const;

  // The buckets of the last synchronised backward, in the order in which their calls started. Empty where gradients are
  // not sent, for example on one rank alone.
  std::vector<BucketTimes> last_buckets() const;

  // The option .shard; kNone when this rank is alone.
  Shard shard() const;

  // The ranks that hold the same shares as this one (DataParallelOptions::mesh); rank 0 of this group belongs to the
  // first replica. Without a mesh the group is this rank alone.
  const Communicator& replicas() const;

  // Whether weights are gathered and freed unit by unit: kParameters over a network. Then every rank must run the same
  // forwards.
  bool gathers() const;
  // If gathers() is true, gathers all weights; they remain until the next prepare_forward() or step. Code that is not a
  // forward of all ranks can then read them: to copy them, to try the model on one rank, or to keep the model after
  // this object is destroyed. Values that are written to them are lost; use load() to change weights. It takes the
  // memory of the whole model. Collective. If gathers() is false, it does nothing.
  void gather_weights();

  std::size_t bucket_count() const;
  // The bytes that this rank has given to calls of the strategy so far (Strategy::bytes_given()); 0 when this rank is
  // alone.
  std::uint64_t bytes_given() const;

 private:
  friend class Join;
  std::shared_ptr<GradientReducer> reducer_;
};

// The module that `model` is or holds. It may be a torch::nn::Module, a std::shared_ptr, a TORCH_MODULE holder or a
// torch::nn::AnyModule.
template <class Model>
torch::nn::Module& module_of(Model& model) {
  if constexpr (std::is_base_of_v<torch::nn::Module, Model>) {
    return model;
  } else if constexpr (requires { model.operator->(); }) {
    return *model;
  } else {
    return *model.ptr();
  }
}

// Returns the options. If they contain no units and the model has a function units(), the result contains the model's
// units.
template <class Model>
DataParallelOptions with_units(DataParallelOptions options, Model& model) {
  if (!options.units.empty()) return options;
  if constexpr (requires { options.units = model.units(); }) {
    options.units = model.units();
  } else if constexpr (requires { options.units = model->units(); }) {
    options.units = model->units();
  }
  return options;
}

// Model: your own torch::nn::Module (kept by reference), or a holder of a module (kept by value): a std::shared_ptr, a
// TORCH_MODULE holder, torch::nn::Sequential, torch::nn::AnyModule.
template <class Model>
class DataParallel : public DataParallelBase {
  static constexpr bool kIsModule = std::is_base_of_v<torch::nn::Module, Model>;
  static constexpr bool kIsPointer = requires(Model & model) { model.operator->(); };
  using Held = std::conditional_t<kIsModule, Model*, Model>;

 public:
  DataParallel(Model& model, Communicator world, const DataParallelOptions& options)
      : DataParallelBase(module_of(model), std::move(world), with_units(options, model)), model_(hold(model)) {}

  // Calls prepare_forward(), then model.forward(arguments...).
  template <class... Arguments>
  decltype(auto) operator()(Arguments&&... arguments) {
    prepare_forward();
    if constexpr (kIsModule || kIsPointer) {
      return model_->forward(std::forward<Arguments>(arguments)...);
    } else {
      return model_.forward(std::forward<Arguments>(arguments)...);
    }
  }

 private:
  static Held hold(Model& model) {
    if constexpr (kIsModule) {
      return &model;
    } else {
      return model;
    }
  }

  Held model_;
};

template <class Model>
DataParallel<std::remove_cvref_t<Model>> data_parallel(Model&& model, Communicator world,
                                                       const DataParallelOptions& options = {}) {
  using Plain = std::remove_cvref_t<Model>;
  static_assert(std::is_lvalue_reference_v<Model> || !std::is_base_of_v<torch::nn::Module, Plain>,
                "the model must outlive its wrapper: pass a variable, not a temporary");
  static_assert(!std::is_base_of_v<torch::nn::Module, Plain> || !std::is_const_v<std::remove_reference_t<Model>>,
                "a constant model cannot be trained");
  return DataParallel<Plain>(const_cast<Plain&>(static_cast<const Plain&>(model)), std::move(world), options);
}

}  // namespace reigen::parallel

namespace reigen {
using parallel::data_parallel;
using parallel::DataParallelOptions;
using parallel::Shard;
}  // namespace reigen
