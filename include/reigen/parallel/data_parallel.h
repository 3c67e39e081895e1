// Data parallelism: every rank holds the whole model and computes on its own samples; gradients are averaged.
//
//   auto parallel = reigen::data_parallel(model, world, {.bucket_mb = 25});
//   auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 1e-3});
//   auto loss = torch::nll_loss(parallel(batch.input), batch.target);
//   loss.backward();         // gradients travel while it runs; when it returns, .grad is the average of all ranks
//   optimizer.step();
//
// Wrapping compares the model's parameters and buffers between ranks and copies rank 0's to all. Gradients live in flat
// buckets in memory that the communicator allocates; when all of a bucket's gradients are there its all_reduce starts,
// in the same order on every rank, and the end of backward waits for the last. Stock torch::optim optimizers work as
// well as ours, and so does every kind of zero_grad.
//
// A parameter that a backward reaches on some ranks only counts as zero on the others; one that it reaches on no rank
// keeps its .grad as it was (undefined: optimizers skip it). No option is needed and nothing hangs. What must be equal
// on all ranks is the number of synchronised backwards; a rank whose backward reaches no parameter at all, or that has
// nothing to compute, calls synchronize(). Where weights come and go (kParameters over a network) backwards also come
// through the same units on all ranks (docs/sharding.md). If a backward throws, catch it on every rank, call
// zero_grad() and go on with the next forward.
//
// Not seen: torch::autograd::grad (it runs no accumulation). backward(create_graph = true) works, but .grad has no
// graph. A parameter must not be used both inside and outside of a reentrant checkpoint unless overlap is off.
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

// What became of a bucket in the last synchronised backward. Nanoseconds since 1970 of this machine's clock.
struct BucketTimes {
  std::string tag = {};     // of its calls: Communicator::history()
  std::uint64_t bytes = 0;  // of its gradients
  std::size_t parameters = 0;
  std::int64_t complete = 0;     // the last of its gradients was there, it was given away
  std::int64_t waited_from = 0;  // backward's own work was over, and that of the buckets before it
  std::int64_t waited_to = 0;
};

class GradientReducer;

// While one lives, backward only adds up this rank's gradients; the first synchronised backward after it averages the
// sum.
class NoSync {
 public:
  explicit NoSync(std::shared_ptr<GradientReducer> reducer);
  NoSync(NoSync&& other) noexcept = default;
  NoSync& operator=(NoSync&&) = delete;  // would end one guard's scope from within another's
  ~NoSync();

 private:
  std::shared_ptr<GradientReducer> reducer_;
};

// The part that does not depend on the model's type. Usable by itself: call prepare_forward() before each forward.
class DataParallelBase {
 public:
  // The module must outlive this object. Blocking, one all_gather and a broadcast of all values.
  // Throws InvalidArgument on every rank when the models or the options differ, naming the first difference and both
  // sides; when the model has no trainable parameter, is wrapped already, or has parameters that FlatParameters
  // refuses; when .shard meets a strategy that acts on weights.
  DataParallelBase(torch::nn::Module& module, Communicator world, const DataParallelOptions& options);
  explicit DataParallelBase(std::shared_ptr<GradientReducer> reducer);  // of another wrapper, beside it

  // The trainable parameters in flat ranges, for reigen::optim and checkpoints. The handles may outlive this object.
  const std::vector<ParameterRange>& parameters() const;

  // The same and those of frozen parameters that ranks divide (kParameters), for checkpoints of the model.
  std::vector<ParameterRange> weights() const;

  // What this rank gives to a checkpoint: of what ranks divide its part, which the first replica has; of the rest rank
  // 0 all. Of the model, and of states that an optimizer or an average names. Handles, not copies.
  //   Pieces model(parallel.own_weights()), states(parallel.own(optimizer.state()));
  std::vector<tensor::NamedTensor> own_weights() const;
  std::vector<tensor::NamedTensor> own(std::vector<tensor::NamedTensor> tensors) const;
  // Reads the weights and buffers of a checkpoint into what each rank holds, whatever ranks wrote it. An optimizer's
  // state is loaded after them. Collective and blocking; throws on every rank alike an Error with the code of the first
  // rank that failed and what did not fit or could not be read; weights are undefined then, until a load() that
  // succeeds.
  void load(const checkpoint::Checkpoint& from, std::string_view group = "model");

  // auto guard = parallel.no_sync();
  [[nodiscard]] NoSync no_sync();

  // Takes part in one averaging with the gradients that this rank has now (none: zeros). In place of backward on a rank
  // where it reaches no parameter, or in place of forward and backward on one that has no samples.
  void synchronize();

  // Which step the next forward belongs to; without it synchronised backwards are counted. The number is part of every
  // call's tag, so a rank that left a step out is an error on all at its next exchange, naming both steps and the
  // parameters. Under a Join it rises by one from one averaging to the next.
  void number_step(std::int64_t step);

  // Throws InvalidArgument naming a parameter that was added, removed, replaced, moved, converted or unfrozen since
  // wrapping, where a step was not told (after_step), and where another optimizer than ours stepped in weights that
  // ranks share. Forgets what a failed backward left. Brings the buffers together (training mode, outside of no_sync,
  // when gradients are exchanged too).
  void prepare_forward();

  // Behind every step of the optimizer when the strategy acts on weights; else it does nothing.
  // WeightStrategy::after_step().
  void after_step();

  // The same model on every rank: buffers (rank 0's; kAverage: their mean), and weights where the strategy lets them
  // differ. Before validating or saving. Blocking; every rank calls it.
  void settle();

  // Whether ranks step with gradients of their own, and weights and optimizer states differ.
  bool ranks_differ() const;

  // What the strategy remembers, for a checkpoint; see Strategy::state(). Alone: nothing.
  std::map<std::string, at::Tensor> strategy_state() const;
  void load_strategy_state(const std::map<std::string, at::Tensor>& state);

  // Time that the last synchronised backward spent waiting for communication after its own work was done.
  std::chrono::duration<double> last_exposed_communication() const;

  // In the order in which they were given away; empty where gradients stay, as alone.
  std::vector<BucketTimes> last_buckets() const;

  // kNone alone.
  Shard shard() const;

  // Who hold the same shares (DataParallelOptions::mesh); rank 0 of them is of the first replica. Else this rank alone.
  const Communicator& replicas() const;

  // Whether weights come and go with units: kParameters over a network. Then every rank makes the same forwards.
  bool gathers() const;
  // Where they do, all come and stay until the next prepare_forward() or step, to be read by what is no forward of all
  // ranks: to copy them, to try the model on one rank, to keep it when this object is gone. What is written there is
  // lost; load() is for that. Memory: the model. Collective; else it does nothing.
  void gather_weights();

  std::size_t bucket_count() const;
  // As Strategy::bytes_given(); alone: 0.
  std::uint64_t bytes_given() const;

 private:
  friend class Join;
  std::shared_ptr<GradientReducer> reducer_;
};

// The module that a model is or holds: a torch::nn::Module, std::shared_ptr, TORCH_MODULE holder, torch::nn::AnyModule.
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

// The options with the units that the model offers, unless they name some.
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

// Model: a torch::nn::Module of yours (kept by reference), or something that holds one (kept by value):
// std::shared_ptr, a TORCH_MODULE holder, torch::nn::Sequential, torch::nn::AnyModule.
template <class Model>
class DataParallel : public DataParallelBase {
  static constexpr bool kIsModule = std::is_base_of_v<torch::nn::Module, Model>;
  static constexpr bool kIsPointer = requires(Model & model) { model.operator->(); };
  using Held = std::conditional_t<kIsModule, Model*, Model>;

 public:
  DataParallel(Model& model, Communicator world, const DataParallelOptions& options)
      : DataParallelBase(module_of(model), std::move(world), with_units(options, model)), model_(hold(model)) {}

  // model.forward(arguments...)
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
