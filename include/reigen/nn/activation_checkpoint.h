// Activation checkpointing: a unit keeps its input instead of everything that its forward saves, and runs its forward
// again when backward comes to it. Activations then take the memory of one input per unit, and of everything in one
// unit at a time. It costs one more forward. Gradients have the same bits.
//
//   auto units = model.units();
//   auto checkpoint = reigen::nn::activation_checkpoint(units, {.every = 2});
//
// The second forward draws the same random numbers: the states of default generators are kept, those of the CPU and of
// the CUDA devices on which the unit's input and parameters lie (5 KB per unit), but no other generator's. It runs
// under the same autocast setting, for all devices that nn::Autocast takes. It leaves the module's buffers as they
// were, so batch statistics count every batch once. If a unit's output depends on buffers that its forward changes (a
// running norm), the second forward begins with what the first has left there. The unit's backward is a backward
// within the backward: gradients of parameters are accumulated once, and their hooks run once, as soon as their unit
// is done. torch::autograd::grad() and create_graph do not work through a checkpointed unit. Tensors that a unit
// computes with, besides its input and its module's parameters, get no gradient.
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
  // Every `every`-th unit is computed again; the others keep their activations. 2: half of the additional computation
  // for half of the savings.
  int every = 1;
  // Selective checkpointing: the names of operations below autograd ("aten::mm") whose outputs are kept and not
  // computed again. products() are the operations that cost most time for the memory of their outputs. The rest of the
  // unit is computed again. Of units within units only one may keep outputs.
  std::vector<std::string> keep = {};
};

// The names of matrix products, convolutions and attention.
std::vector<std::string> products();

// Checkpointing ends when this object is destroyed: units then keep their activations. Do not destroy it between a
// forward and its backward.
class ActivationCheckpoint {
 public:
  ActivationCheckpoint(std::vector<Unit> units, const ActivationCheckpointOptions& options);
  ActivationCheckpoint(ActivationCheckpoint&&) noexcept = default;
  ActivationCheckpoint& operator=(ActivationCheckpoint&&) = delete;  // it would end one scope within another
  ~ActivationCheckpoint();

  // The units that are computed again.
  const std::vector<Unit>& units() const { return units_; }

 private:
  std::vector<Unit> units_;
};

// Throws InvalidArgument when `every` is less than 1, when a unit is checkpointed already, or when `keep` has a name
// that is no operation or one that writes into its arguments or returns views of them. Backward throws it when the
// unit's output was changed in place and a kept output lies in its memory.
[[nodiscard]] ActivationCheckpoint activation_checkpoint(const std::vector<Unit>& units,
                                                         const ActivationCheckpointOptions& options = {});

}  // namespace reigen::nn
