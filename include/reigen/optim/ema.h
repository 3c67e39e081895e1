// Exponential moving average of the weights: weights that change less from step to step, for validation and for the
// final model.
//
//   auto average = reigen::optim::ExponentialMovingAverage(parallel.parameters(), {.decay = 0.999});
//   optimizer.step();  average.update();
//   { auto averaged = average.swap_in();  validate(model); }       // the model has the average while `averaged` lives
//
//   average = decay_t·average + (1 - decay_t)·p;      p: a weight; the average begins as p at construction
// Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, 1992; torch.optim.swa_utils in PyTorch.
// Memory: a copy of the weights in fp32 (in fp64 for fp64 weights). Buffers (batch statistics) are not averaged. If
// ranks shard the weights or the optimizer states (data_parallel's Shard), they shard the average too. In this case
// every rank must make the same calls. The constructor, update(), swap_in() and end() may then wait for all ranks, and
// throw the errors of Communicator::barrier().
// Thread rule: one thread at a time may use an ExponentialMovingAverage.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reigen/optim/optimizer.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

struct EmaOptions {
  double decay = 0.999;  // in [0, 1)
  // True: decay_t = min(decay, (1 + t) / (10 + t)) in the t-th update, so that the initial weights do not dominate the
  // average of a short run. False: decay_t = decay.
  bool warmup = true;
};

class ExponentialMovingAverage {
  struct Impl;

 public:
  // While this object lives, the parameters hold the average. end() or the destructor restores the weights, bit for
  // bit. If ranks shard the average, and an exception destroys this object, the weights are not restored. Restoring
  // them needs all ranks, and the other ranks may not have had the exception. If restoring fails, end() throws the
  // error. The destructor ignores the error.
  class Swapped {
   public:
    explicit Swapped(std::shared_ptr<Impl> impl);
    Swapped(Swapped&&) noexcept = default;
    Swapped& operator=(Swapped&&) = delete;  // it would end the scope of the object on its left
    ~Swapped();
    void end();  // restores the weights now; the destructor then does nothing

   private:
    std::shared_ptr<Impl> impl_;
    int exceptions_;  // std::uncaught_exceptions() at construction
  };

  // Throws InvalidArgument for options out of range and for parameters that are not fp32, fp64, bf16 or fp16.
  explicit ExponentialMovingAverage(std::vector<ParameterRange> parameters, const EmaOptions& options = {});

  // Updates the average in one pass. `norm` is for parameters on a GPU (device_norm.h). If it was passed and its
  // `stopped` is 1, the average does not change; updates() counts the call all the same. Throws InvalidArgument while
  // the average is swapped in, and if the norm is on another device than the parameters.
  void update(const DeviceNorm* norm = nullptr);
  std::int64_t updates() const;

  // Swaps weights and average in one pass. If the weights have 16 bits, it keeps a copy of them and copies the average
  // into them. Autograd's version counters change, so a graph that was built before throws in its backward. Throws
  // InvalidArgument when weights and average are swapped already.
  [[nodiscard]] Swapped swap_in();

  // The state for a checkpoint. For each parameter it has an entry "<parameter>.ema" with the parameter's shape. This
  // tensor is the average itself, not a copy. The entry "ema.updates" is one int64. Throws InvalidArgument while the
  // average is swapped in.
  std::vector<NamedTensor> state() const;
  // Copies the entries into the average. Throws InvalidArgument, and changes nothing, when an entry is missing,
  // unknown, or of another shape or type. The error names the entry.
  void load_state(const std::vector<NamedTensor>& state);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace reigen::optim
