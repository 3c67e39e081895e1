// Backwards that cannot be differentiated again.
// Thread rule: any thread.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include "reigen/base/error.h"

namespace reigen::nn::fused {

// With create_graph, autograd could differentiate `gradients`, the result of a backward, and would get wrong numbers:
// their backward does not say how they depend on the tensors. This gives them an autograd node that throws
// InvalidArgument with `report`. `on` are the tensors on which they depend, so for which somebody could ask a second
// derivative. `edges` lead to the graph of further such tensors. Without create_graph this does nothing.
void refuse_second_derivatives(const torch::autograd::variable_list& gradients,
                               const torch::autograd::variable_list& on, const Report& report,
                               torch::autograd::edge_list edges = {});

}  // namespace reigen::nn::fused
