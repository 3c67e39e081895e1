// Compares the gradients of whole parameters between ranks that divide others (tensor parallelism). These ranks compute
// them from the same samples, so they are equal up to rounding. They are not if the plan of the division lacks a style
// for a weight that each rank uses with its own features only: each rank then has a part of the gradient.
// Thread rule: one thread at a time.
#pragma once

#include <string>
#include <vector>

#include "optim/range_state.h"

namespace reigen::optim {

// Collective over the owners of boxes. names[i] is the parameter of updates[i]. Throws InvalidArgument on every rank
// that names the first parameter whose gradients differ by more than rounding, with their norms. Parameters of which
// the ranks have other shares are left out. For parameters on the CPU.
void compare_whole_gradients(const std::vector<Update>& updates, const std::vector<std::string>& names,
                             const Communicator& owners);

}  // namespace reigen::optim
