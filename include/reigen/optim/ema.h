// Exponential moving average of the weights: a smoother model to validate with and to ship.
//
//   auto average = reigen::optim::ExponentialMovingAverage(parallel.parameters(), {.decay = 0.999});
//   optimizer.step();  average.update();
//   { auto averaged = average.swap_in();  validate(model); }       // the model has the average while `averaged` lives
//
//   average = decay_t·average + (1 - decay_t)·p;      average starts as the weights at construction
// Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, 1992; torch.optim.swa_utils in PyTorch.
// Memory: an fp32 copy of the values (fp64 for fp64 values). Buffers (batch statistics) are not averaged.
// Where ranks share the weights (data_parallel's Shard) they share the average too: every rank makes the same calls,
// and construction, update(), swap_in() and end() wait for all ranks and throw as a barrier does.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reigen/optim/optimizer.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

struct EmaOptions {
  double decay = 0.999;  // in [0, 1)
  // decay_t = min(decay, (1 + t) / (10 + t)) in the t-th update: a short run's average is not its initial weights.
  bool warmup = true;
};

class ExponentialMovingAverage {
  struct Impl;

 public:
  // While it lives, the parameters hold the average; its end brings the weights back, bit for bit. If an exception
  // destroys it, weights that ranks share stay swapped, because other ranks would not come to the same point. Only
  // end() reports an error while it brings the weights back; the destructor drops the error.
  class Swapped {
   public:
    explicit Swapped(std::shared_ptr<Impl> impl);
    Swapped(Swapped&&) noexcept = default;
    Swapped& operator=(Swapped&&) = delete;  // it would end one scope from within another's
    ~Swapped();
    void end();  // brings the weights back now, not in the destructor

   private:
    std::shared_ptr<Impl> impl_;
    int exceptions_;  // exceptions that were in flight at construction
  };

  // Throws InvalidArgument for options out of range and for parameters that are not fp32, fp64, bf16 or fp16.
  explicit ExponentialMovingAverage(std::vector<ParameterRange> parameters, const EmaOptions& options = {});

  // Updates the average, in one pass. Throws InvalidArgument while swapped in.
  void update();
  std::int64_t updates() const;

  // Swaps weights and average, in one pass (for 16-bit values a copy of them is kept). Tells autograd that the values
  // changed. Throws InvalidArgument when they are swapped already.
  [[nodiscard]] Swapped swap_in();

  // For a checkpoint: "<parameter>.ema", each with the parameter's shape (the average itself, not a copy), and
  // "ema.updates", one int64. Throws InvalidArgument while swapped in.
  std::vector<NamedTensor> state() const;
  // Throws InvalidArgument, naming the entry, when one is missing, unknown, or of another shape or type; nothing is
  // changed then.
  void load_state(const std::vector<NamedTensor>& state);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace reigen::optim
