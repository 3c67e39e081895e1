// Groups of parameters with options of their own, selected by name. They are the counterpart of PyTorch's param_groups
// for parameters that lie in one range.
//
//   auto optimizer = reigen::optim::AdamW(parallel.parameters(),
//                                         {.weight_decay = 0.1, .groups = {{.patterns = {"head.*"}, .lr_factor = 10},
//                                                                          reigen::optim::no_decay()}});
//
// A parameter belongs to the first group with a pattern that matches one of its names (a tied parameter has several). A
// parameter without a group uses the optimizer's own options. Weight decay pulls biases and the scales of norms towards
// 0 without any gain: Goyal et al., Accurate, Large Minibatch SGD, https://arxiv.org/abs/1706.02677, section 5.3.
// Thread rule: values, freely copied between threads, and pure functions.
#pragma once

#include <string>
#include <vector>

#include "reigen/config/optimizers.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

// A group for biases and norms with the usual options: no weight decay, and no trust ratio (LARS, LAMB). "@vectors"
// matches every parameter with at most one dimension.
ParameterGroup no_decay(std::vector<std::string> patterns = {"@vectors"});

// Whether `pattern` matches a name of the segment's parameter. `*` matches any text, `?` one character.
bool matches(const std::string& pattern, const tensor::Segment& segment);

// The patterns that match no parameter; such a pattern is most likely a typing error.
std::vector<std::string> unmatched_patterns(const std::vector<ParameterGroup>& groups,
                                            const std::vector<ParameterRange>& ranges);

}  // namespace reigen::optim
