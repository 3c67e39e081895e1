// Data parallelism: every rank holds the whole model and computes on its own samples; gradients are averaged.
//
//   auto parallel = reigen::data_parallel(model, world, {.bucket_mb = 25});
//   auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 1e-3});
//   auto loss = torch::nll_loss(parallel(batch.input), batch.target);
//   loss.backward();         // gradients travel while it runs; when it returns, .grad is the average of all ranks
//   optimizer.step();
//
// Wrapping compares the model's parameters and buffers between the ranks and copies rank 0's values to all ranks.
// Gradients live in flat buckets, in memory that the communicator allocates. A bucket's all_reduce starts when its
// last gradient is ready; all ranks start their buckets in the same order, and the end of backward waits for the last
// one. Optimizers of torch::optim work as well as those of reigen::optim, and every kind of zero_grad works.
//
// A parameter that a backward reaches on only some of the ranks counts as zero on the others. A parameter that it
// reaches on no rank keeps its .grad as it was (undefined: optimizers skip it). This needs no option, and nothing
// hangs. The number of synchronised backwards must be equal on all ranks: a rank whose backward would reach no
// parameter at all, or that has nothing to compute, calls synchronize() instead. Where weights are gathered and freed
// unit by unit (kParameters over a network), the backwards of all ranks must also pass through the same units
// (docs/sharding.md). If a backward throws, catch the error on every rank, call zero_grad() and go on with the next
// forward.
//
// Gradients that torch::autograd::grad() returns are not averaged: it does not accumulate into .grad, so no hook runs.
// backward(create_graph = true) works, but .grad has no graph. A parameter must not be used both inside and outside of
// a reentrant checkpoint unless overlap is off.
//
// After Li et al., PyTorch Distributed, https://arxiv.org/abs/2006.15704
// Thread rule: one thread at a time, the one that runs backward. Ranks may be threads of one process.
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
  std::string tag = {};     // the tag of its calls in Communicator::history()
  std::uint64_t bytes = 0;  // size of its gradients
  std::size_t parameters = 0;
  std::int64_t complete = 0;     // when its call started: its gradients were complete
  std::int64_t waited_from = 0;  // when this rank began to wait for it, after backward's own work
  std::int64_t waited_to = 0;
};

class GradientReducer;

// While a NoSync object lives, backward only adds up this rank's gradients. The first synchronised backward after its
// destruction averages the sum.
class NoSync {
 public:
  explicit NoSync(std::shared_ptr<GradientReducer> reducer);
  NoSync(NoSync&& other) noexcept = default;
  NoSync& operator=(NoSync&&) = delete;  // it would end one guard's scope from within another's
  ~NoSync();

 private:
  std::shared_ptr<GradientReducer> reducer_;
};

// The part of the wrapper that does not depend on the model's type. It can be used by itself: then call
// prepare_forward() before each forward.
class DataParallelBase {
 public:
  // The module must outlive this object. The constructor is collective and blocking; it costs one all_gather and a
  // broadcast of all values. It throws InvalidArgument on every rank when the models or the options differ between
  // ranks (the error names the first difference and both sides); when the model has no trainable parameter, is wrapped
  // already, or has parameters that FlatParameters refuses; when .shard is combined with a strategy that it does not
  // allow (one that acts on weights; any strategy with kGradients or kParameters); and when an option is out of range.
  DataParallelBase(torch::nn::Module& module, Communicator world, const DataParallelOptions& options);
  explicit DataParallelBase(std::shared_ptr<GradientReducer> reducer);  // a second handle of another wrapper

  // The trainable parameters in flat ranges, for reigen::optim and checkpoints. The handles may outlive this object.
  const std::vector<ParameterRange>& parameters() const;

  // The ranges of parameters(), and those of frozen parameters that ranks divide (kParameters), for checkpoints of the
  // model.
  std::vector<ParameterRange> weights() const;

  // The tensors that this rank gives to a checkpoint. Of a tensor that ranks divide, each rank of the first replica
  // gives its part; rank 0 gives all other tensors. own_weights() selects from the model's tensors, own() from the
  // given states of an optimizer or an average. The results are handles, not copies.
  //   Pieces model(parallel.own_weights()), states(parallel.own(optimizer.state()));
  std::vector<tensor::NamedTensor> own_weights() const;
  std::vector<tensor::NamedTensor> own(std::vector<tensor::NamedTensor> tensors) const;
  // Reads the weights and buffers of a checkpoint into the parts that each rank holds; the number of ranks that wrote
  // it, and how they divided it, may differ. Load an optimizer's state after the weights. Collective and blocking. On
  // a failure every rank throws the same Error: it has the code of the first rank that failed, and says what did not
  // fit or could not be read. The weights are then undefined until a load() succeeds.
  void load(const checkpoint::Checkpoint& from, std::string_view group = "model");

  // auto guard = parallel.no_sync();
  [[nodiscard]] NoSync no_sync();

  // Takes part in one averaging with the gradients that this rank has now; a missing gradient counts as zeros. Call it
  // in place of backward on a rank whose backward would reach no parameter, or in place of forward and backward on a
  // rank without samples. If gathers() is true, it throws InvalidArgument unless a backward ran before it.
  void synchronize();

  // Sets the number of the step that the next forward belongs to. Without it the synchronised backwards are counted.
  // The number is part of the tag of every call: when a rank has left out a step, its next exchange fails on all ranks
  // with an error that names both steps and the parameters. Under a Join the number must rise by one from one
  // averaging to the next.
  void number_step(std::int64_t step);

  // Call it before each forward (DataParallel's operator() does). It discards what a failed backward left. It also
  // synchronises the buffers: in training mode, outside of no_sync(), and when the backward will average gradients.
  // Throws InvalidArgument when a parameter was added, removed, replaced, moved, converted or unfrozen since wrapping
  // (the error names it); when after_step() was left out after a step; and when an optimizer that is not of
  // reigen::optim changed weights that ranks share.
  void prepare_forward();

  // Call it after every step of the optimizer when the strategy acts on weights (WeightStrategy::after_step()). With
  // other strategies it does nothing.
  void after_step();

  // Makes the model the same on every rank: the buffers (every rank takes rank 0's; with kAverage their mean), and the
  // weights where the strategy lets them differ. Call it before validating or saving. Blocking; every rank calls it.
  void settle();

  // Whether each rank steps with its own gradients at present, so that weights and optimizer states differ between
  // ranks.
  bool ranks_differ() const;

  // The state of the strategy, for a checkpoint; see Strategy::state(). Empty when this rank is alone.
  std::map<std::string, at::Tensor> strategy_state() const;
  void load_strategy_state(const std::map<std::string, at::Tensor>& state);

  // The time that the last synchronised backward spent waiting for communication, within backward and after its own
  // work.
  std::chrono::duration<double> last_exposed_communication() const;

  // The buckets of the last synchronised backward, in the order in which their calls started. Empty where gradients do
  // not travel, as on one rank alone.
  std::vector<BucketTimes> last_buckets() const;

  // The option .shard; kNone when this rank is alone.
  Shard shard() const;

  // The ranks that hold the same shares as this one (DataParallelOptions::mesh); rank 0 of this group belongs to the
  // first replica. Without a mesh the group is this rank alone.
  const Communicator& replicas() const;

  // Whether weights are gathered and freed unit by unit: kParameters over a network. Then every rank must run the same
  // forwards.
  bool gathers() const;
  // If gathers() is true, gathers all weights; they stay until the next prepare_forward() or step. Code that is not a
  // forward of all ranks can then read them: to copy them, to try the model on one rank, or to keep the model after
  // this object is destroyed. Values that are written there are lost; use load() to change weights. It takes the
  // memory of the whole model. Collective. If gathers() is false, does nothing.
  void gather_weights();

  std::size_t bucket_count() const;
  // As Strategy::bytes_given(); 0 when this rank is alone.
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

// Returns the options. If they name no units and the model has a function units(), the result has the model's units.
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
