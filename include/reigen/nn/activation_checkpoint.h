// Activation checkpointing: a unit keeps its input instead of all that its forward saves, and computes it again when
// backward comes to it. Memory of activations: one input a unit, and all of one unit at a time; a forward more of
// computing. Gradients are the same bits.
//
//   auto units = model.units();
//   auto checkpoint = reigen::nn::activation_checkpoint(units, {.every = 2});
//
// The second forward draws the same random numbers: the states of the CPU's default generator and of those of the CUDA
// devices on which the unit's input and parameters lie are kept (5 KB a unit); no other generator's. It runs under the
// same autocast setting, of all devices that nn::Autocast takes, and leaves the module's buffers as they were: batch
// statistics count every batch once. A unit whose output depends on buffers that its forward changes (a running norm)
// starts the second from what the first has left. The unit's backward is a backward within the backward: parameters are
// accumulated, and their hooks run, once, as soon as their unit is done. torch::autograd::grad() and create_graph do
// not pass through it. What a unit computes with besides its input and its module's parameters gets no gradient.
//
// Ranks that are threads share the default generator of a device: units that draw from it (dropout) then need
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
  // Every so many-th unit is computed again, the others keep their activations. 2: half the additional computing for
  // half the savings.
  int every = 1;
  // Operations, by their names below autograd ("aten::mm"), whose outputs are kept and not computed again: selective
  // checkpointing. products() are those that cost most for their memory; the rest of the unit is computed again. Of
  // units within units only one may keep.
  std::vector<std::string> keep = {};
};

// Matrix products, convolutions and attention.
std::vector<std::string> products();

// Ends with its destruction: units then keep their activations. Not between a forward and its backward.
class ActivationCheckpoint {
 public:
  ActivationCheckpoint(std::vector<Unit> units, const ActivationCheckpointOptions& options);
  ActivationCheckpoint(ActivationCheckpoint&&) noexcept = default;
  ActivationCheckpoint& operator=(ActivationCheckpoint&&) = delete;  // would end one within another's life
  ~ActivationCheckpoint();

  // Those that are computed again.
  const std::vector<Unit>& units() const { return units_; }

 private:
  std::vector<Unit> units_;
};

// Throws InvalidArgument when `every` is less than 1, a unit is checkpointed already, or `keep` has a name that is no
// operation or one that writes into its arguments or gives views of them. Backward throws it when the unit's output has
// been changed in place and a kept one lies in its memory.
[[nodiscard]] ActivationCheckpoint activation_checkpoint(const std::vector<Unit>& units,
                                                         const ActivationCheckpointOptions& options = {});

}  // namespace reigen::nn
