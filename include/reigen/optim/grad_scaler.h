// Dynamic loss scaling for gradients in fp16. Without loss scaling, fp16 loses gradients below 6e-8, and overflows
// above 65504.
//
//   reigen::optim::GradScaler scaler;
//   scaler.scale(loss).backward();
//   const auto done = scaler.step(optimizer, parallel.parameters(), {.max_norm = 1.0});    // false if skipped
//   optimizer.zero_grad();
//
// S is the loss scale:
//   gradients = S · true gradients;  the optimizer's pass itself divides by S and clips to max_norm
//   if any element is infinite or NaN:                       no step, S = S · backoff_factor
//   after growth_interval steps in a row without such an element:     S = S · growth_factor
// All ranks must make the same decision. After a data-parallel backward every rank has the same gradients, so an
// overflow on one rank is an overflow on all ranks, and no communication is needed. If ranks shard gradients
// (data_parallel's Shard), they compute the norm together. If gradients differ between ranks (with a strategy that acts
// on weights), pass the ranks' group in ScaledStep::agree. Then all ranks step, or all ranks skip the step. This costs
// one all_reduce of a flag before each step.
// Micikevicius et al., Mixed Precision Training, https://arxiv.org/abs/1710.03740
// Thread rule: one thread at a time may use a GradScaler.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/optim/optimizer.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

struct GradScalerOptions {
  double init_scale = 65536;            // above 0
  double growth_factor = 2;             // above 1
  double backoff_factor = 0.5;          // in (0, 1)
  std::int64_t growth_interval = 2000;  // at least 1
  double min_scale = 1;                 // above 0; an overflow at this scale is an error of the model, not of fp16
  bool enabled = true;                  // false: S is 1, and step() never skips a step
};

struct ScaledStep {
  double max_norm = 0;            // limit of the norm of the true gradients; 0 means no clipping
  double max_value = 0;           // limit of the elements' magnitudes, applied after max_norm; 0 means no clipping
  Communicator* agree = nullptr;  // ranks that step or skip together although their gradients differ; or null
};

class GradScaler {
 public:
  // Throws InvalidArgument for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  // Returns loss · S, which has the autograd graph of `loss`.
  at::Tensor scale(const at::Tensor& loss) const;

  // Calls the optimizer's step if all gradients are finite, and updates S. Returns true if it made the step. Cost: one
  // pass that reads the gradients, and the optimizer's pass. If gradients are not finite and S is min_scale, throws
  // Error (kNotANumber) on all ranks.
  bool step(Optimizer& optimizer, const std::vector<ParameterRange>& parameters, const ScaledStep& how = {});

  double scale() const { return scale_; }
  // The norm of the true gradients of the last step(); infinite or NaN if that step was skipped.
  double last_norm() const { return last_norm_; }
  std::int64_t skipped() const { return skipped_; }  // number of skipped steps so far

  // The state for a checkpoint: "scaler.scale", "scaler.clean_steps" and "scaler.skipped", one fp64 number each. The
  // tensors are copies.
  std::vector<NamedTensor> state() const;
  // Throws InvalidArgument when an entry is missing, unknown, or of another shape or type. The error names the entry.
  void load_state(const std::vector<NamedTensor>& state);

 private:
  GradScalerOptions options_;
  double scale_;
  double last_norm_ = 0;
  std::int64_t clean_steps_ = 0;  // steps in a row without a skipped step, since the scale changed
  std::int64_t skipped_ = 0;
};

}  // namespace reigen::optim
