// Dynamic loss scaling for gradients in fp16, which lose what is below 6e-8 and overflow above 65504.
//
//   reigen::optim::GradScaler scaler;
//   scaler.scale(loss).backward();
//   const auto done = scaler.step(optimizer, parallel.parameters(), {.max_norm = 1.0});    // false: skipped
//   optimizer.zero_grad();
//
//   gradients = S · true gradients;  a step with gradients / S, clipped to max_norm, in the optimizer's own pass
//   any element infinite or NaN:   no step, S = S · backoff_factor
//   growth_interval steps without: S = S · growth_factor
// All ranks must decide alike. After a data-parallel backward every rank has the same gradients, an overflow on one is
// one on all, and nothing need travel; where ranks share them (data_parallel's Shard) the norm is that of all. Where
// gradients differ (strategies of weights) give the group: one all_reduce of a flag comes before anybody steps.
// Micikevicius et al., Mixed Precision Training, https://arxiv.org/abs/1710.03740
// Thread rule: one thread at a time.
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
  double min_scale = 1;                 // above 0: an overflow at this scale is an error of the model's, not of fp16's
  bool enabled = true;                  // false: scale() and step() change nothing and skip nothing
};

struct ScaledStep {
  double max_norm = 0;            // of the true gradients; 0: not clipped
  double max_value = 0;           // of their elements' magnitudes, after max_norm; 0: not clipped
  Communicator* agree = nullptr;  // ranks that step or skip together though their gradients differ
};

class GradScaler {
 public:
  // Throws InvalidArgument for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  // loss · S, with the loss's graph.
  at::Tensor scale(const at::Tensor& loss) const;

  // Steps, unless gradients are not finite; brings S up to date. True if it has stepped. One pass that reads the
  // gradients, and the optimizer's. Throws Error (kNotANumber) when gradients are not finite at min_scale: of all
  // ranks.
  bool step(Optimizer& optimizer, const std::vector<ParameterRange>& parameters, const ScaledStep& how = {});

  double scale() const { return scale_; }
  // Of the true gradients of the last step(); infinite or NaN where that was skipped.
  double last_norm() const { return last_norm_; }
  std::int64_t skipped() const { return skipped_; }  // steps, so far

  // For a checkpoint: "scaler.scale", "scaler.clean_steps" and "scaler.skipped", one fp64 number each; copies.
  std::vector<NamedTensor> state() const;
  // Throws InvalidArgument, naming the entry, when one is missing, unknown or of another shape or type.
  void load_state(const std::vector<NamedTensor>& state);

 private:
  GradScalerOptions options_;
  double scale_;
  double last_norm_ = 0;
  std::int64_t clean_steps_ = 0;  // since the scale changed
  std::int64_t skipped_ = 0;
};

}  // namespace reigen::optim
