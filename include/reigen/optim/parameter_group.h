// Groups of parameters with options of their own, chosen by name: PyTorch's param_groups, for parameters that lie in
// one range.
//
//   auto optimizer = reigen::optim::AdamW(parallel.parameters(),
//                                         {.weight_decay = 0.1, .groups = {{.patterns = {"head.*"}, .lr_factor = 10},
//                                                                          reigen::optim::no_decay()}});
//
// A parameter belongs to the first group with a pattern that matches one of its names (a tied parameter has several).
// For a parameter without a group the optimizer's own options count. Weight decay pulls a norm's scale and a bias
// towards 0 for no gain: Goyal et al., Accurate, Large Minibatch SGD, https://arxiv.org/abs/1706.02677, section 5.3.
// Thread rule: values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "reigen/config/optimizers.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

// The group of biases and norms as most recipes treat them: no decay, no trust ratio.
ParameterGroup no_decay(std::vector<std::string> patterns = {"@vectors"});

bool matches(const std::string& pattern, const tensor::Segment& segment);

// The patterns that match no parameter: most likely a typing error.
std::vector<std::string> unmatched_patterns(const std::vector<ParameterGroup>& groups,
                                            const std::vector<ParameterRange>& ranges);

}  // namespace reigen::optim
