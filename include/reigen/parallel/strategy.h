// How the ranks of data parallelism stay together: what happens to the gradients during backward, and to the weights
// between two steps. One option picks one of strategies.h, or one of your own:
//
//   auto parallel = reigen::data_parallel(model, world, {.strategy = reigen::parallel::local_sgd({.every = 8})});
//   ...
//   loss.backward();
//   optimizer.step();
//   parallel.after_step();                // strategies that act on weights need it; for the others it does nothing
//
// A strategy is a class in a file of its own and a function that makes it. Its calls come in the same order on every
// rank, but what one rank calls may come earlier or later than on another.
// - Gradients: begin() for every bucket as soon as it is complete on this rank, while backward goes on; then, when
//   backward is over, end() for each, in that order.
// - Weights: after_step() behind every step of the optimizer; settle() before weights are judged or saved.
// Thread rule: one thread at a time, the one that runs backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
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

  // ---- Gradients

  // False: the next backward's gradients stay where they are, and so do buffers. The same on every rank; changes only
  // in after_step() and load_state().
  virtual bool exchanges_gradients() const { return true; }
  // Whether it treats all elements of the runs alike, one that is zero on all ranks stays zero and one that is 1 on
  // some does not become it. Then the reducer's flags travel along; else in a call of their own.
  virtual bool keeps_zeros() const { return false; }
  // Whether end() gives a mean over the ranks, in which one that gave zeros counts; no: zeros change nothing.
  virtual bool averages() const { return true; }
  // Takes this rank's gradients; may start asynchronous calls, must not wait.
  virtual void begin(const GradientBucket&) {}
  // The bucket's gradients = what the ranks agreed on. Waits.
  virtual void end(const GradientBucket&) {}

  // ---- Weights

  // True: after_step() must come behind every step, and ranks' weights may differ between two calls of
  // settle().
  virtual bool acts_on_weights() const { return false; }
  // Every rank has made the same number of steps. May wait for other ranks.
  virtual void after_step() {}
  // Weights, and what the strategy remembers, become the same on all ranks; the mean over the ranks of either stays
  // what it was. Waits for all ranks.
  virtual void settle() {}

  // ---- Checkpoints

  // What it remembers, by name; the same on every rank after settle(). The tensors are the state itself.
  virtual std::map<std::string, at::Tensor> state() const { return {}; }
  // Copies into them. Throws InvalidArgument when an entry is missing, unknown, or of another shape or type; nothing is
  // changed then.
  void load_state(const std::map<std::string, at::Tensor>& state);
};

using StrategyFactory = std::function<std::unique_ptr<Strategy>(const Communicator& world)>;

}  // namespace reigen::parallel
