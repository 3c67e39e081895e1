// The groups of parameters that the options no_decay, no_adapt and lr_factors make.
// Thread rule: no shared state.
#pragma once

#include <vector>

#include "reigen/layout/model.h"
#include "reigen/optim/parameter_group.h"
#include "reigen/tensor/parameter_range.h"
#include "reigen/train/config.h"

namespace reigen::train {

// no_decay, no_adapt and lr_factors are independent of each other. Parameters with the same treatment by all three form
// a group, whose patterns are their names. A parameter with the usual treatment is in no group. `whole`: the parameters
// of the whole model, if this rank has only some of them. Throws InvalidArgument for a pattern that matches none.
std::vector<optim::ParameterGroup> parameter_groups(const OptimConfig& config,
                                                    const std::vector<ParameterRange>& ranges,
                                                    const std::vector<layout::TensorSpec>& whole = {});

// The same for groups that a task gives (Task::configure_optimizers). A pattern that matches no parameter of this rank
// is left out.
std::vector<optim::ParameterGroup> own_groups(const std::vector<optim::ParameterGroup>& groups,
                                              const std::vector<ParameterRange>& ranges,
                                              const std::vector<layout::TensorSpec>& whole = {});

}  // namespace reigen::train
