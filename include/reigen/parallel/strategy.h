// The interface of strategies. A strategy combines the ranks' gradients during backward, or their weights between two
// steps. One option selects a strategy from strategies.h, or a strategy of your own:
//
//   auto parallel = reigen::data_parallel(model, world, {.strategy = reigen::parallel::local_sgd({.every = 8})});
//   ...
//   loss.backward();
//   optimizer.step();
//   parallel.after_step();                // needed by strategies that act on weights; otherwise it does nothing
//
// A strategy is a class in a file of its own, and a function that creates it. There are two kinds. The functions of a
// strategy are called in the same order on every rank, but one rank may be ahead of another.
// - GradientStrategy: begin() is called for each bucket when the bucket is complete on this rank, while backward
//   continues. After backward, end() is called for each bucket in the same order.
// - WeightStrategy: after_step() is called after every step of the optimizer, and settle() before weights are validated
//   or saved. While averages_gradients() is true, the GradientStrategy plain() averages the gradients.
// Thread rule: only the thread that runs backward.
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
  std::size_t index = 0;  // in the order of begin(), the same on every rank
  // Flat pieces of memory from Communicator::allocate. They hold the gradients below. The elements between the
  // gradients are zeros, or flags that say which parameters have a gradient.
  std::vector<at::Tensor> runs = {};
  std::vector<at::Tensor> gradients = {};  // views into `runs`, shaped as the parameters; no gradient: zeros
  std::vector<std::string> names = {};     // names of the parameters
  std::string tag = {};                    // for the calls of this step: "step 7 bucket 0"
};

// The functions that both kinds of strategy have.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // The name, with every option that must be equal on all ranks: "plain", "compressed BFloat16". The ranks compare it.
  virtual std::string description() const = 0;

  // Bytes that this rank has given to calls so far. The input of a reduction counts once, however many bytes the
  // algorithm sends. A message counts once for each rank to which it was sent.
  virtual std::uint64_t bytes_given() const = 0;

  // Whether the strategy works on gradients or weights in the memory of a GPU: it makes its calls after LibTorch's
  // current stream, and lets this stream wait for them (Work::wait_on).
  virtual bool works_on_gpu() const { return false; }

  // Called once, before all other functions, with the weights that all ranks begin with. The handles may be kept.
  virtual void attach(const std::vector<ParameterRange>&) {}

  // Makes the strategy's state and the weights equal on all ranks. Their means over the ranks do not change. Waits for
  // all ranks.
  virtual void settle() {}

  // The strategy's state by name. After settle() it is the same on every rank. The tensors are the state itself, not
  // copies.
  virtual std::map<std::string, at::Tensor> state() const { return {}; }
  // Copies the given tensors into the state. Throws InvalidArgument, and changes nothing, when an entry is missing,
  // unknown, or of another shape or type.
  void load_state(const std::map<std::string, at::Tensor>& state);
  // Throws as load_state() would, and changes nothing.
  void require_state_fits(const std::map<std::string, at::Tensor>& state) const;
};

// Replaces the gradients of every rank by one common result of all ranks' gradients. Every rank steps with this result.
class GradientStrategy : public Strategy {
 public:
  // True: the strategy treats all elements of the runs alike, an element that is zero on all ranks remains zero, and an
  // element that is 1 on some rank does not become zero. Then the flags that say which parameters have a gradient are
  // sent within the runs. False: the flags are sent in a call of their own.
  virtual bool keeps_zeros() const { return false; }
  // True: end() gives a mean over all ranks, and a rank that gave zeros counts in the number of ranks. False: a rank
  // that gives zeros does not change the result.
  virtual bool averages() const { return true; }
  // Takes this rank's gradients of the bucket. It may start asynchronous calls, and must not wait.
  virtual void begin(const GradientBucket& bucket) = 0;
  // Waits, and writes the common result into the bucket's gradients.
  virtual void end(const GradientBucket& bucket) = 0;
};

// In some steps, replaces the weights of every rank by a result of the weights of several or all ranks. The ranks'
// weights may differ between two calls of settle().
class WeightStrategy : public Strategy {
 public:
  // True: the next backward averages gradients, and buffers are synchronised. False: each rank keeps its own gradients
  // and buffers. The returned value is the same on every rank, and changes only in after_step() and load_state().
  virtual bool averages_gradients() const { return false; }
  // Called after every step of the optimizer; every rank makes the same number of steps. It may wait for other ranks.
  virtual void after_step() = 0;
};

// Holds the functions that every rank calls to create its strategies. It is constructed from one function, which
// returns a std::unique_ptr to a strategy of either kind.
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

  MakeGradients gradients = {};  // none: plain()
  MakeWeights weights = {};      // none: nothing happens to weights
};

}  // namespace reigen::parallel
