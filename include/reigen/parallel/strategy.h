// How the ranks of data parallelism stay together: what happens to the gradients during backward, and to the weights
// between two steps. One option picks one of strategies.h, or one of your own:
//
//   auto parallel = reigen::data_parallel(model, world, {.strategy = reigen::parallel::local_sgd({.every = 8})});
//   ...
//   loss.backward();
//   optimizer.step();
//   parallel.after_step();                // strategies that act on weights need it; for the others it does nothing
//
// A strategy is a class in a file of its own and a function that makes it. There are two kinds. Their calls come in the
// same order on every rank, but what one rank calls may come earlier or later than on another.
// - GradientStrategy: begin() for every bucket after it is complete on this rank, while backward goes on; then, after
//   backward, end() for each, in the same order.
// - WeightStrategy: after_step() after every step of the optimizer; settle() before weights are judged or saved. While
//   it averages gradients (averages_gradients()) a GradientStrategy does so: plain().
// Thread rule: one thread at a time, the one that runs backward.
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

// Gradients of one element type that travel together.
struct GradientBucket {
  std::size_t index = 0;  // in the order of begin(), the same on every rank
  // What lies in memory from Communicator::allocate, in flat pieces: the gradients below and what lies between them,
  // zeros and flags of the reducer.
  std::vector<at::Tensor> runs = {};
  std::vector<at::Tensor> gradients = {};  // one a parameter, with its shape, within the runs; zero where there is none
  std::vector<std::string> names = {};     // of the parameters
  std::string tag = {};                    // for the calls of this step: "step 7 bucket 0"
};

// What both kinds have.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // With every option that ranks must have in common: "plain", "compressed BFloat16". It is compared between them.
  virtual std::string description() const = 0;

  // Bytes that this rank has given away so far: what went into reductions (once, whatever the algorithm makes of it)
  // and what was sent to other ranks (once for each).
  virtual std::uint64_t bytes_given() const = 0;

  // Once, before all else: the weights that all ranks begin with. The handles may be kept.
  virtual void attach(const std::vector<ParameterRange>&) {}

  // What the strategy remembers, and weights, become the same on all ranks; the mean over the ranks of either stays
  // what it was. Waits for all ranks.
  virtual void settle() {}

  // What it remembers, by name; the same on every rank after settle(). The tensors are the state itself.
  virtual std::map<std::string, at::Tensor> state() const { return {}; }
  // Copies into them. Throws InvalidArgument when an entry is missing, unknown, or of another shape or type; nothing is
  // changed then.
  void load_state(const std::map<std::string, at::Tensor>& state);
  // Throws as load_state() would, and changes nothing.
  void require_state_fits(const std::map<std::string, at::Tensor>& state) const;
};

// g = what the ranks agree on, of all ranks' g.
class GradientStrategy : public Strategy {
 public:
  // Whether it treats all elements of the runs alike, one that is zero on all ranks stays zero and one that is 1 on
  // some does not become it. Then flags of which parameters have a gradient travel along; else in a call of their own.
  virtual bool keeps_zeros() const { return false; }
  // Whether end() gives a mean over the ranks, in which one that gave zeros counts; no: zeros change nothing.
  virtual bool averages() const { return true; }
  // Takes this rank's gradients; may start asynchronous calls, must not wait.
  virtual void begin(const GradientBucket& bucket) = 0;
  // The bucket's gradients = what the ranks agreed on. Waits.
  virtual void end(const GradientBucket& bucket) = 0;
};

// x = what the ranks agree on, of all ranks' x. Ranks' weights may differ between two calls of settle().
class WeightStrategy : public Strategy {
 public:
  // True: the next backward's gradients are averaged, and buffers brought together. False: both stay where they are.
  // The same on every rank; changes only in after_step() and load_state().
  virtual bool averages_gradients() const { return false; }
  // Every rank has made the same number of steps. May wait for other ranks.
  virtual void after_step() = 0;
};

// The functions that every rank calls to make its strategies. It is made of one function, which returns a
// std::unique_ptr to a class of either kind.
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
