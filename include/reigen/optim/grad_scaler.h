// Dynamic loss scaling for gradients in fp16, which lose values below 6e-8 and overflow above 65504.
//
//   reigen::optim::GradScaler scaler;
//   scaler.scale(loss).backward();
//   const auto done = scaler.step(optimizer, parallel.parameters(), {.max_norm = 1.0});    // false: skipped
//   optimizer.zero_grad();
//
// S is the loss scale:
//   gradients = S · true gradients;  a step with gradients / S, clipped to max_norm, in the optimizer's own pass
//   any element infinite or NaN:   no step, S = S · backoff_factor
//   growth_interval steps in a row without such an element: S = S · growth_factor
// All ranks must make the same decision. After a data-parallel backward every rank has the same gradients, so an
// overflow on one rank is an overflow on all, and no communication is needed. Where ranks shard gradients
// (data_parallel's Shard), the norm is over all ranks. Where gradients differ between ranks (strategies of weights),
// pass the group in ScaledStep::agree: one all_reduce of a flag then comes before any rank steps.
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
  double min_scale = 1;                 // above 0: an overflow at this scale comes from the model, not from fp16
  bool enabled = true;                  // false: scale() and step() change nothing and skip nothing
};

struct ScaledStep {
  double max_norm = 0;            // limit of the norm of the true gradients; 0: no clipping
  double max_value = 0;           // limit of the elements' magnitudes, applied after max_norm; 0: no clipping
  Communicator* agree = nullptr;  // group of ranks that step or skip together though their gradients differ
};

class GradScaler {
 public:
  // Throws InvalidArgument for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});

  // Returns loss · S, with the loss's graph.
  at::Tensor scale(const at::Tensor& loss) const;

  // Steps if all gradients are finite, and updates S. Returns true if it made a step. It costs one pass that reads the
  // gradients, and the optimizer's pass. Throws Error (kNotANumber), on all ranks, when gradients are not finite at
  // min_scale.
  bool step(Optimizer& optimizer, const std::vector<ParameterRange>& parameters, const ScaledStep& how = {});

  double scale() const { return scale_; }
  // The norm of the true gradients of the last step(); infinite or NaN if that step was skipped.
  double last_norm() const { return last_norm_; }
  std::int64_t skipped() const { return skipped_; }  // number of skipped steps so far

  // For a checkpoint: "scaler.scale", "scaler.clean_steps" and "scaler.skipped", one fp64 number each; copies.
  std::vector<NamedTensor> state() const;
  // Throws InvalidArgument, naming the entry, when an entry is missing, unknown or of another shape or type.
  void load_state(const std::vector<NamedTensor>& state);

 private:
  GradScalerOptions options_;
  double scale_;
  double last_norm_ = 0;
  std::int64_t clean_steps_ = 0;  // steps since the scale changed
  std::int64_t skipped_ = 0;
};

}  // namespace reigen::optim
