// The interface of strategies. A strategy combines the ranks' gradients during backward, or their weights between two
// steps. The option .strategy selects a strategy from strategies.h, or a strategy that you write:
//
//   auto parallel = reigen::data_parallel(model, world, {.strategy = reigen::parallel::local_sgd({.every = 8})});
//   ...
//   loss.backward();
//   optimizer.step();
//   parallel.after_step();                // needed by strategies that act on weights; otherwise it does nothing
//
// To write a strategy, write a class and a function that creates an object of it. The class derives from
// GradientStrategy or WeightStrategy. Every rank calls the functions of its strategy in the same order, but one rank
// may be ahead of another.
// - GradientStrategy: when all gradients of a bucket (gradients that are sent together) are ready on this rank, begin()
//   is called for the bucket. Backward continues after it. After backward, end() is called for each bucket, in the same
//   order as begin().
// - WeightStrategy: after_step() is called after every step of the optimizer, and settle() before weights are validated
//   or saved. While averages_gradients() returns true, the GradientStrategy of plain() averages the gradients.
// Thread rule: only the thread that runs backward calls these functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::parallel {

// Gradients of one element type that are sent in one call.
struct GradientBucket {
  std::size_t index = 0;  // number of the bucket in the order of the calls of begin(); the same on every rank
  // One-dimensional tensors in memory from Communicator::allocate. They contain the tensors of `gradients`. The
  // elements between two gradients are zeros, or flags that say which parameters have a gradient.
  std::vector<at::Tensor> runs = {};
  std::vector<at::Tensor> gradients = {};  // views into `runs`, in the parameters' shapes; zeros if .grad is undefined
  std::vector<std::string> names = {};     // names of the parameters
  std::string tag = {};                    // the tag for this step's calls: "step 7 bucket 0"
};

// The functions that both kinds of strategy have.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // The name of the strategy, with every option that must be equal on all ranks: "plain", "compressed BFloat16". The
  // ranks compare this text.
  virtual std::string description() const = 0;

  // Bytes that this rank has given to calls so far. For a reduction the size of its input counts once, however many
  // bytes the algorithm sends. A message counts once for each rank to which it was sent.
  virtual std::uint64_t bytes_given() const = 0;

  // Whether the strategy works on gradients or weights in the memory of a GPU. Such a strategy makes its calls begin
  // after the work on LibTorch's current stream, and makes this stream wait for the calls (Work::wait_on).
  virtual bool works_on_gpu() const { return false; }

  // Called once, before all other functions, with the weights that all ranks begin with. The strategy may keep copies
  // of the ranges.
  virtual void attach(const std::vector<ParameterRange>&) {}

  // Makes the strategy's state and the weights equal on all ranks. The means of the state and of the weights over the
  // ranks do not change. Waits for all ranks.
  virtual void settle() {}

  // The strategy's state; the keys are names. After settle() the state is the same on every rank. The tensors are the
  // state itself, not copies.
  virtual std::map<std::string, at::Tensor> state() const { return {}; }
  // Copies the given tensors into the state. Throws InvalidArgument, and changes nothing, when an entry is missing,
  // unknown, or of another shape or type.
  void load_state(const std::map<std::string, at::Tensor>& state);
  // Throws InvalidArgument in the cases in which load_state() would throw it. Changes nothing.
  void require_state_fits(const std::map<std::string, at::Tensor>& state) const;
};

// Replaces the gradients of every rank by one common result of all ranks' gradients. Every rank steps with this result.
class GradientStrategy : public Strategy {
 public:
  // True: the strategy treats all elements of GradientBucket::runs alike. An element that is zero on all ranks remains
  // zero, and an element that is 1 on some rank does not become zero. In this case data_parallel() puts flags into the
  // runs that say which parameters have a gradient. False: these flags are sent in a separate call.
  virtual bool keeps_zeros() const { return false; }
  // True: the result of end() is a mean over all ranks, also over the ranks whose gradients are zeros. False: a rank
  // whose gradients are zeros does not change the result.
  virtual bool averages() const { return true; }
  // Called with this rank's gradients of the bucket. It may start asynchronous calls, but must not wait for other
  // ranks.
  virtual void begin(const GradientBucket& bucket) = 0;
  // Waits for the calls of the bucket, and writes the common result into the bucket's gradients.
  virtual void end(const GradientBucket& bucket) = 0;
};

// In some steps, replaces the weights of every rank by a result that it computes from the weights of several or all
// ranks. The ranks' weights may differ between two calls of settle().
class WeightStrategy : public Strategy {
 public:
  // True: the next backward averages the gradients over the ranks, and the next forward synchronises the buffers.
  // False: each rank keeps its own gradients and buffers. The returned value must be the same on every rank, and may
  // change only in after_step() and load_state().
  virtual bool averages_gradients() const { return false; }
  // Called after every step of the optimizer. Every rank makes the same number of steps. after_step() may wait for
  // other ranks.
  virtual void after_step() = 0;
};

// Contains the function that each rank calls to create its strategy. The constructors take this function. It returns a
// std::unique_ptr to a GradientStrategy or to a WeightStrategy.
class StrategyFactory {
 public:
  using MakeGradients = std::function<std::unique_ptr<GradientStrategy>(const Communicator& world)>;
  using MakeWeights = std::function<std::unique_ptr<WeightStrategy>(const Communicator& world)>;

  StrategyFactory() = default;
  template <class Make>
  requires std::is_constructible_v<MakeGradients, Make> StrategyFactory(Make make) : gradients(std::move(make)) {}
  template <class Make>
  requires std::is_constructible_v<MakeWeights, Make> StrategyFactory(Make make) : weights(std::move(make)) {}

  explicit operator bool() const { return gradients || weights; }

  MakeGradients gradients = {};  // if it is empty, plain() is used
  MakeWeights weights = {};      // if it is empty, weights are not combined
};

}  // namespace reigen::parallel
