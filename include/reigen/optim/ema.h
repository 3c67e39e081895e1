// Exponential moving average of the weights: smoother weights, for validation and for the final model.
//
//   auto average = reigen::optim::ExponentialMovingAverage(parallel.parameters(), {.decay = 0.999});
//   optimizer.step();  average.update();
//   { auto averaged = average.swap_in();  validate(model); }       // the model has the average while `averaged` lives
//
//   average = decay_t·average + (1 - decay_t)·p;      p: a weight; average starts as p at construction
// Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, 1992; torch.optim.swa_utils in PyTorch.
// Memory: an fp32 copy of the values (fp64 for fp64 values). Buffers (batch statistics) are not averaged. Ranks that
// shard the weights (data_parallel's Shard) shard the average too. In this case every rank must make the same calls;
// construction, update(), swap_in() and end() wait for all ranks, and throw as a barrier does.
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
  // decay_t = min(decay, (1 + t) / (10 + t)) in the t-th update, so that the initial weights do not dominate a short
  // run's average.
  bool warmup = true;
};

class ExponentialMovingAverage {
  struct Impl;

 public:
  // While this object lives, the parameters hold the average. end() or the destructor restores the weights, bit for
  // bit. If an exception destroys the object, weights that ranks shard remain swapped, because the other ranks would
  // not reach the same point. If restoring fails, end() throws the error, and the destructor ignores it.
  class Swapped {
   public:
    explicit Swapped(std::shared_ptr<Impl> impl);
    Swapped(Swapped&&) noexcept = default;
    Swapped& operator=(Swapped&&) = delete;  // the assignment would end another object's scope
    ~Swapped();
    void end();  // restores the weights now, not in the destructor

   private:
    std::shared_ptr<Impl> impl_;
    int exceptions_;  // exceptions that were in flight at construction
  };

  // Throws InvalidArgument for options out of range and for parameters that are not fp32, fp64, bf16 or fp16.
  explicit ExponentialMovingAverage(std::vector<ParameterRange> parameters, const EmaOptions& options = {});

  // Updates the average, in one pass. With a norm (on a GPU) nothing changes if a norm was not finite. Throws
  // InvalidArgument while the average is swapped in, and if the norm is on another device than the parameters.
  void update(const DeviceNorm* norm = nullptr);
  std::int64_t updates() const;

  // Swaps weights and average, in one pass (16-bit weights are copied and kept instead). Autograd notices that the
  // values changed. Throws InvalidArgument when they are swapped already.
  [[nodiscard]] Swapped swap_in();

  // For a checkpoint: "<parameter>.ema", each with the parameter's shape (the average itself, not a copy), and
  // "ema.updates", one int64. Throws InvalidArgument while the average is swapped in.
  std::vector<NamedTensor> state() const;
  // Throws InvalidArgument, naming the entry, when an entry is missing, unknown, or of another shape or type; in these
  // cases nothing changes.
  void load_state(const std::vector<NamedTensor>& state);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace reigen::optim
