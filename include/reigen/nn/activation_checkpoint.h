// Activation checkpointing: a unit (a part of a model, unit.h) keeps only its input, and not the other tensors that its
// forward saves for backward. When backward reaches the unit, the unit runs its forward again. So memory is needed for
// the inputs of all units, and for the other activations of only one unit at a time. The cost is one more forward.
// Gradients have the same bits as without checkpointing.
//
//   auto units = model.units();
//   auto checkpoint = reigen::nn::activation_checkpoint(units, {.every = 2});
//
// The second forward draws the same random numbers as the first. For this, each unit keeps the states of the default
// generators of the CPU and of the CUDA devices on which its input and parameters lie (5 KB per unit). It does not keep
// the states of other generators. The second forward runs under the same autocast setting as the first, for all devices
// that nn::Autocast accepts. It does not change the module's buffers, so batch statistics count every batch once. But
// the second forward begins with the buffers as the first forward left them. If a unit's output depends on buffers that
// its forward changes, the two outputs differ. The unit runs its own backward inside the backward of the model.
// Gradients of the unit's parameters are accumulated once, and their hooks run once, as soon as the unit's own backward
// is done. torch::autograd::grad() and create_graph do not work through a checkpointed unit. Only the unit's input and
// its module's parameters get gradients; other tensors with which the unit computes get none.
//
// Ranks that are threads of one process share the default generator of a device. If units draw from it (dropout), the
// ranks must be processes.
//
// After Chen et al., Training Deep Nets with Sublinear Memory Cost, https://arxiv.org/abs/1604.06174; the option `keep`
// after Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models,
// https://arxiv.org/abs/2205.05198
// Thread rule: one thread at a time may use the units.
#pragma once

#include <string>
#include <vector>

#include "reigen/nn/unit.h"

namespace reigen::nn {

struct ActivationCheckpointOptions {
  // Every `every`-th unit is computed again. The other units keep their activations. With 2, half of the units are
  // computed again. Compared with 1, this saves half as much memory and takes half as much additional time.
  int every = 1;
  // Selective checkpointing: the names of operations whose outputs are kept and not computed again. They are names of
  // operations as LibTorch dispatches them below autograd ("aten::mm"). products() returns the operations that cost the
  // most time per byte of output. All other operations of the unit are computed again. If a checkpointed unit lies
  // inside another one, only one of the two may keep outputs.
  std::vector<std::string> keep = {};
};

// Returns the names of the operations for matrix products, convolutions and attention, for the option `keep`.
std::vector<std::string> products();

// Units are checkpointed while this object lives. After its destruction they keep their activations. Do not destroy it
// between a forward and its backward.
class ActivationCheckpoint {
 public:
  ActivationCheckpoint(std::vector<Unit> units, const ActivationCheckpointOptions& options);
  ActivationCheckpoint(ActivationCheckpoint&&) noexcept = default;
  ActivationCheckpoint& operator=(ActivationCheckpoint&&) = delete;  // it would end the scope of the object on its left
  ~ActivationCheckpoint();

  // The units that are computed again.
  const std::vector<Unit>& units() const { return units_; }

 private:
  std::vector<Unit> units_;
};

// Throws InvalidArgument when `every` is less than 1, when a unit is checkpointed already, or when a name in `keep` is
// not an operation, or is an operation that writes into its arguments or returns views of them. Backward throws
// InvalidArgument when an output that was kept because of `keep` lies in the memory of the unit's output, and other
// code has changed the unit's output in place.
[[nodiscard]] ActivationCheckpoint activation_checkpoint(const std::vector<Unit>& units,
                                                         const ActivationCheckpointOptions& options = {});

}  // namespace reigen::nn
