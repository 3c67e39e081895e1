// Exponential moving average of the weights: a smoother model to validate with and to ship.
//
//   auto average = reigen::optim::ExponentialMovingAverage(parallel.parameters(), {.decay = 0.999});
//   optimizer.step();  average.update();
//   { auto averaged = average.swap_in();  validate(model); }       // the model has the average while `averaged` lives
//
//   average = decay_t·average + (1 - decay_t)·p;      average starts as the weights at construction
// Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, 1992; torch.optim.swa_utils in PyTorch.
// Memory: an fp32 copy of the values (fp64 for fp64 values). Buffers (batch statistics) are not averaged.
// Where ranks share the weights (data_parallel's Shard) they share the average: every rank makes the same calls, and
// construction, update(), swap_in() and end() wait for all and throw as a barrier does.
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
  // While it lives the parameters hold the average; its end brings the weights back, bit for bit. Shared weights stay
  // swapped when it ends by an exception, for which other ranks would not wait, and what goes wrong in its end is only
  // heard of when that is end().
  class Swapped {
   public:
    explicit Swapped(std::shared_ptr<Impl> impl);
    Swapped(Swapped&&) noexcept = default;
    Swapped& operator=(Swapped&&) = delete;  // would end one scope from within another's
    ~Swapped();
    void end();  // nothing more happens then

   private:
    std::shared_ptr<Impl> impl_;
    int exceptions_;  // under way when it began
  };

  // Throws InvalidArgument for options out of range and for parameters that are not fp32, fp64, bf16 or fp16.
  explicit ExponentialMovingAverage(std::vector<ParameterRange> parameters, const EmaOptions& options = {});

  // One pass. Throws InvalidArgument while swapped in.
  void update();
  std::int64_t updates() const;

  // Weights and average change places; one pass (for bf16 values: a copy of them is kept). Autograd is told that the
  // values changed. Throws InvalidArgument when they have changed places already.
  [[nodiscard]] Swapped swap_in();

  // For a checkpoint: "<parameter>.ema", each with the parameter's shape, the average itself (not copies), and
  // "ema.updates", one int64. Throws InvalidArgument while swapped in.
  std::vector<NamedTensor> state() const;
  // Throws InvalidArgument, naming the entry, when one is missing, unknown, or of another shape or type; nothing is
  // changed then.
  void load_state(const std::vector<NamedTensor>& state);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace reigen::optim
