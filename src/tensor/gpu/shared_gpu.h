// Says which ranks are threads of one process and use the same GPU (reigen/tensor/gpu_work.h).
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <utility>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// Returns the first two ranks of the group that are threads of one process, use the same GPU, and have not both
// separated their work. Returns nothing if there are no such ranks. Every rank gets the same answer. `device`: the
// device of this rank. Collective.
std::optional<std::pair<int, int>> ranks_on_one_backward_thread(const at::Device& device, const Communicator& ranks);

}  // namespace reigen::tensor
