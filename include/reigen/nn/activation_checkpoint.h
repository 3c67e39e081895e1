// Activation checkpointing: a unit (a part of a model, unit.h) keeps only its input, and not everything that its
// forward saves for backward. When backward reaches the unit, the unit runs its forward again. Activations then take
// memory for the input of each unit, and for all activations of one unit at a time. It costs one more forward.
// Gradients have the same bits as without checkpointing.
//
//   auto units = model.units();
//   auto checkpoint = reigen::nn::activation_checkpoint(units, {.every = 2});
//
// The second forward draws the same random numbers: each unit keeps the states of the default generators of the CPU and
// of the CUDA devices on which its input and parameters lie (5 KB per unit). It does not keep the states of other
// generators. The second forward runs under the same autocast setting, for all devices that nn::Autocast accepts. It
// leaves the module's buffers as they were, so batch statistics count every batch once. If a unit's output depends on
// buffers that its forward changes (a running norm), the second forward begins with the buffers as the first forward
// left them. The unit's backward is a backward within the backward: gradients of parameters are accumulated once, and
// their hooks run once, as soon as the backward of their unit is done. torch::autograd::grad() and create_graph do not
// work through a checkpointed unit. Only the unit's input and its module's parameters get gradients; other tensors with
// which the unit computes get none.
//
// Ranks that are threads share the default generator of a device: if units draw from it (dropout), ranks must be
// processes.
//
// After Chen et al., Training Deep Nets with Sublinear Memory Cost, https://arxiv.org/abs/1604.06174; selective: after
// Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, https://arxiv.org/abs/2205.05198
// Thread rule: one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "reigen/nn/unit.h"

namespace reigen::nn {

struct ActivationCheckpointOptions {
  // Every `every`-th unit is computed again; the others keep their activations. With 2, half of the units are computed
  // again: half of the additional computation saves half of the memory.
  int every = 1;
  // Selective checkpointing: the names of operations below autograd ("aten::mm") whose outputs are kept and not
  // computed again. products() are the operations that cost the most time per byte of output. The rest of the unit is
  // computed again. If units are nested, only one of them may keep outputs.
  std::vector<std::string> keep = {};
};

// The names of the operations for matrix products, convolutions and attention; made for `keep`.
std::vector<std::string> products();

// Checkpointing ends when this object is destroyed. From then on the units keep their activations. Do not destroy it
// between a forward and its backward.
class ActivationCheckpoint {
 public:
  ActivationCheckpoint(std::vector<Unit> units, const ActivationCheckpointOptions& options);
  ActivationCheckpoint(ActivationCheckpoint&&) noexcept = default;
  ActivationCheckpoint& operator=(ActivationCheckpoint&&) = delete;  // the assignment would end another object's scope
  ~ActivationCheckpoint();

  // The units that are computed again.
  const std::vector<Unit>& units() const { return units_; }

 private:
  std::vector<Unit> units_;
};

// Throws InvalidArgument when `every` is less than 1, when a unit is checkpointed already, or when `keep` has a name
// that is no operation, or names an operation that writes into its arguments or returns views of them. Backward throws
// InvalidArgument when the output of a unit was changed in place and an output kept by `keep` lies in the same memory.
[[nodiscard]] ActivationCheckpoint activation_checkpoint(const std::vector<Unit>& units,
                                                         const ActivationCheckpointOptions& options = {});

}  // namespace reigen::nn
