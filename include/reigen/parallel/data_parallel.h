// Data parallelism: every rank computes on its own samples, and the gradients are averaged over the ranks.
//
//   auto parallel = reigen::data_parallel(model, world, {.bucket_mb = 25});
//   auto optimizer = reigen::optim::AdamW(parallel.parameters(), {.lr = 1e-3});
//   auto loss = torch::nll_loss(parallel(batch.input), batch.target);
//   loss.backward();         // ranks exchange gradients during backward; afterwards .grad is the average of all ranks
//   optimizer.step();
//
// data_parallel() compares the model's parameters and buffers between the ranks, and copies rank 0's values to all
// ranks. Gradients lie in buckets. A bucket is flat memory that the communicator allocates. Its all_reduce starts when
// its last gradient is ready. All ranks start their buckets in the same order. backward() returns after the all_reduce
// of the last bucket is complete. Optimizers of torch::optim and of reigen::optim both work (with the option .shard
// only those of reigen::optim). Every kind of zero_grad works.
//
// If a backward reaches a parameter on only some of the ranks, the gradient counts as zero on the other ranks. If no
// rank's backward reaches a parameter, its .grad does not change. If that .grad is undefined, optimizers skip the
// parameter. All this needs no option, and no rank hangs. All ranks must run the same number of backwards that average
// gradients. A rank whose backward would reach no parameter at all, or that has nothing to compute, calls synchronize()
// instead of this backward. With kParameters over a network, weights are gathered and freed one unit (part of the
// model, nn/unit.h) at a time. In this case the backwards of all ranks must also pass through the same units
// (docs/sharding.md). If a backward throws, catch the error on every rank, call zero_grad() and continue with the next
// forward.
//
// Gradients that torch::autograd::grad() returns are not averaged, because torch::autograd::grad() adds nothing to
// .grad and so runs no hook. backward(create_graph = true) works, but the averaged .grad has no graph. A parameter must
// not be used both inside and outside of a reentrant activation checkpoint unless overlap is off.
//
// After Li et al., PyTorch Distributed, https://arxiv.org/abs/2006.15704
// Thread rule: only the thread that runs backward may use a wrapped model. Ranks may be threads of one process.
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

// Size and times of one bucket (gradients that are sent in one call) in the last backward that averaged gradients.
// Times are nanoseconds since 1970 by this machine's clock.
struct BucketTimes {
  std::string tag = {};     // the tag of the bucket's calls in Communicator::history()
  std::uint64_t bytes = 0;  // size of the gradients
  std::size_t parameters = 0;
  std::int64_t complete = 0;     // when the bucket's call started; its last gradient was then ready
  std::int64_t waited_from = 0;  // when this rank began to wait for the bucket's call
  std::int64_t waited_to = 0;    // when this wait ended
};

class GradientReducer;

// While a NoSync object lives, backward only adds up this rank's gradients. The first backward after the destruction of
// this object averages the sum.
class NoSync {
 public:
  explicit NoSync(std::shared_ptr<GradientReducer> reducer);
  NoSync(NoSync&& other) noexcept = default;
  NoSync& operator=(NoSync&&) = delete;  // it would end the scope of the object on its left
  ~NoSync();

 private:
  std::shared_ptr<GradientReducer> reducer_;
};

// The part of DataParallel that does not depend on the model's type. A program that uses this class without
// DataParallel calls prepare_forward() before each forward.
class DataParallelBase {
 public:
  // The module must outlive this object. The constructor is collective and blocking. It costs one all_gather and a
  // broadcast of all values. Every rank throws InvalidArgument in each of these cases:
  // - The models or the options differ between ranks. The error names the first difference, and shows what both ranks
  //   have there.
  // - The model has no trainable parameter, or it is wrapped already.
  // - A trainable parameter is sparse, is not floating point, or shares memory with another parameter without being
  //   tied to it.
  // - A trainable parameter is neither on the CPU nor on the GPU of the group `world` (GroupOptions::device).
  // - .shard is set together with a strategy that acts on weights, or kGradients or kParameters together with any
  //   strategy.
  // - An option is out of range, or does not fit the other options.
  DataParallelBase(torch::nn::Module& module, Communicator world, const DataParallelOptions& options);
  explicit DataParallelBase(std::shared_ptr<GradientReducer> reducer);  // a second handle to a wrapped model

  // The trainable parameters, for reigen::optim and checkpoints. A range is a flat buffer with several parameters. The
  // ranges may outlive this object.
  const std::vector<ParameterRange>& parameters() const;

  // Those of parameters() that belong to this list of DataParallelOptions::optimizers, for an optimizer that steps only
  // them. Empty if there are none. Throws InvalidArgument if there is no such list.
  std::vector<ParameterRange> parameters(const std::vector<std::string>& patterns) const;

  // The ranges that parameters() returns, and then the ranges of frozen parameters that ranks shard (with kParameters).
  // They are for checkpoints of the model.
  std::vector<ParameterRange> weights() const;

  // The tensors that this rank writes into a checkpoint. If each rank holds only its part of a tensor, each rank writes
  // this part. With a mesh (DataParallelOptions::mesh) several ranks may hold the same part; only the rank of the first
  // replica writes it. Rank 0 writes all other tensors. own_weights() selects from the model's tensors. own() selects
  // from the given tensors, which are the state of an optimizer or of an average. The returned tensors are handles, not
  // copies.
  //   Pieces model(parallel.own_weights()), states(parallel.own(optimizer.state()));
  std::vector<tensor::NamedTensor> own_weights() const;
  std::vector<tensor::NamedTensor> own(std::vector<tensor::NamedTensor> tensors) const;
  // Reads the checkpoint's tensors named `group` (weights and buffers) into the model. If each rank holds only its part
  // of a tensor, each rank reads this part. Any number of ranks with any sharding may have written the checkpoint. Load
  // an optimizer's state after the weights. Collective and blocking. If a rank fails, every rank throws the same Error.
  // The Error has the exit code of the first rank that failed. It names the tensor that did not fit, or the file that
  // could not be read. The weights are then undefined until a load() succeeds.
  void load(const checkpoint::Checkpoint& from, std::string_view group = "model");

  // Returns a NoSync object, for example: auto guard = parallel.no_sync();
  [[nodiscard]] NoSync no_sync();

  // Averages gradients with the other ranks, which do so in their backward. This rank contributes the gradients that it
  // has now; a missing gradient counts as zeros. Call synchronize() instead of backward on a rank whose backward would
  // reach no parameter, or instead of forward and backward on a rank without samples. If gathers() is true,
  // synchronize() throws InvalidArgument, unless a backward of this rank has begun to average gradients and has not
  // ended the average.
  void synchronize();

  // Sets the number of the step to which the next forward belongs. By default the number counts the averages of
  // gradients. The number is part of the tag of every call that exchanges gradients, and ranks compare tags. If a rank
  // has left out a step, the next exchange therefore fails on all ranks. The error names both steps and the parameters.
  // While a Join (join.h) lives, the number must rise by one from one average of gradients to the next.
  void number_step(std::int64_t step);

  // Call it before each forward. DataParallel's operator() calls it. If the last backward failed, prepare_forward()
  // waits for the calls that this backward had started. If the model is in training mode and the next backward averages
  // gradients, it also synchronises the buffers (DataParallelOptions::buffers). Throws InvalidArgument in these cases:
  // a parameter was added, removed, replaced, moved, converted or unfrozen after wrapping (the error names the
  // parameter); the strategy acts on weights, and after_step() was left out after a step; all ranks share the weights
  // in one memory, and an optimizer that is not from reigen::optim changed them.
  void prepare_forward();

  // If the strategy acts on weights, call after_step() after every step of the optimizer. It calls
  // WeightStrategy::after_step(). With other strategies it does nothing.
  void after_step();

  // Makes the model the same on every rank. Every rank takes the buffers of rank 0, or, with BufferPolicy::kAverage,
  // the mean of all ranks' buffers. If the strategy lets the weights differ between ranks, they also become equal. Call
  // settle() before you validate or save the model. Collective and blocking.
  void settle();

  // True while the strategy lets each rank step with its own gradients, so that weights and optimizer states differ
  // between ranks.
  bool ranks_differ() const;

  // The state of the strategy, for a checkpoint; see Strategy::state(). Empty if `world` has only one rank.
  std::map<std::string, at::Tensor> strategy_state() const;
  void load_strategy_state(const std::map<std::string, at::Tensor>& state);

  // How long this rank waited for communication in the last backward that averaged gradients. Waits inside this
  // backward and waits at its end both count.
  std::chrono::duration<double> last_exposed_communication() const;

  // The buckets (gradients that are sent in one call) of the last backward that averaged gradients, in the order in
  // which their calls started. Empty if gradients are not sent, for example if `world` has only one rank.
  std::vector<BucketTimes> last_buckets() const;

  // The option .shard, or kNone if `world` has only one rank.
  Shard shard() const;

  // The group of the ranks that hold the same shares as this rank (DataParallelOptions::mesh). Rank 0 of this group
  // belongs to the first replica. Without a mesh the group consists of this rank only.
  const Communicator& replicas() const;

  // Whether weights are gathered and freed one unit (part of the model) at a time. This is so with kParameters over a
  // network. Then every rank must run the same forwards.
  bool gathers() const;
  // If gathers() is true, gathers all weights on every rank, which takes the memory of the whole model. The weights
  // remain in memory until the next prepare_forward() or step. Until then any code can read them, for example to copy
  // them, to run the model on one rank only, or to use the model after this object is destroyed. Values that are
  // written to the gathered weights are lost; use load() to change weights. Collective. If gathers() is false, it does
  // nothing.
  void gather_weights();

  std::size_t bucket_count() const;
  // The bytes that this rank has given so far to calls that exchange gradients or weights, counted as
  // Strategy::bytes_given() counts them. 0 if `world` has only one rank.
  std::uint64_t bytes_given() const;

 private:
  friend class Join;
  std::shared_ptr<GradientReducer> reducer_;
};

// Returns `model` itself if it is a torch::nn::Module, or else the module that `model` holds. `model` may be a
// torch::nn::Module, a std::shared_ptr, a TORCH_MODULE holder or a torch::nn::AnyModule.
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

// Returns the given options. If they contain no units and the model has a function units(), the returned options
// contain the model's units.
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

// `Model` is a class derived from torch::nn::Module, of which this object keeps a reference. Or `Model` is a holder of
// a module, of which this object keeps a copy: a std::shared_ptr, a TORCH_MODULE holder, torch::nn::Sequential,
// torch::nn::AnyModule.
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
