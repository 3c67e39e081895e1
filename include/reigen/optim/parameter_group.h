// Groups of parameters with options of their own, selected by name. They have the role of PyTorch's param_groups, for
// parameters that lie together in flat ranges.
//
//   auto optimizer = reigen::optim::AdamW(parallel.parameters(),
//                                         {.weight_decay = 0.1, .groups = {{.patterns = {"head.*"}, .lr_factor = 10},
//                                                                          reigen::optim::no_decay()}});
//
// A parameter belongs to the first group with a pattern that matches one of its names (a tied parameter has several
// names). A parameter without a group uses the optimizer's own options. no_decay() exists because weight decay of
// biases, and of the scales of normalisation layers, does not help training: Goyal et al., Accurate, Large Minibatch
// SGD, https://arxiv.org/abs/1706.02677, section 5.3.
// Thread rule: these types are values; every thread may have its own copy. Any thread may call the functions.
#pragma once

#include <string>
#include <vector>

#include "reigen/config/optimizers.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

// Returns a group for biases and the parameters of normalisation layers. It has no weight decay, and in LARS and LAMB
// no trust ratio. "@vectors" matches every parameter with at most one dimension.
ParameterGroup no_decay(std::vector<std::string> patterns = {"@vectors"});

// Whether `pattern` matches a name of the parameter that `segment` describes. `*` matches any text, and `?` matches one
// character.
bool matches(const std::string& pattern, const tensor::Segment& segment);

// Returns the patterns that match no parameter. Such a pattern is probably a typing error.
std::vector<std::string> unmatched_patterns(const std::vector<ParameterGroup>& groups,
                                            const std::vector<ParameterRange>& ranges);

}  // namespace reigen::optim
