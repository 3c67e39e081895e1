// A backward in two parts: first the gradients of a stage's inputs, for which the stage before waits, and later those
// of its weights.
//
// How it works: the nodes of the autograd graph between the outputs and the inputs form the trunk. A weight hangs on
// the trunk by a node of it, for example the product of a linear layer. The first part runs the trunk only, because
// LibTorch computes no gradients that nobody asks for. A hook at each node on which weights hang keeps the gradients
// that arrive there. The second part begins at each of these nodes with what the hook has kept, and computes the
// gradients of its weights only. A weight that hangs on several nodes gets its gradient in the first part.
//
// Source: Qi et al., https://arxiv.org/abs/2401.10241; PyTorch, torch/distributed/pipelining/_backward.py
// Thread rule: one thread at a time, the one that runs the forward.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "reigen/nn/unit.h"

namespace reigen::parallel {

class SplitBackward {
 public:
  // Computes the gradients of `inputs`, leaf tensors, and adds them to their `.grad`. `gradients`: of `outputs`; empty
  // for one output with one element. With no inputs given it computes all gradients, also those of leaf tensors that
  // are inputs, and weights() has nothing to do.
  SplitBackward(const nn::Carry& outputs, const nn::Carry& gradients, const nn::Carry& inputs);
  SplitBackward(SplitBackward&&) noexcept;
  SplitBackward& operator=(SplitBackward&&) noexcept;
  ~SplitBackward();

  // Computes the gradients of the weights, and adds them to their `.grad`. Frees the graph.
  void weights();

 private:
  struct Start;
  std::vector<std::shared_ptr<Start>> starts_;  // the nodes on which weights hang
  nn::Carry outputs_;                           // keep the graph
};

}  // namespace reigen::parallel
