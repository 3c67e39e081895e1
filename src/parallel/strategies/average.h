// The call that most strategies end in.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::parallel {

// Who moves a call on that a strategy starts while backward goes on, whatever it carries.
comm::Progress beside_backward(const Communicator& world);

// Every tensor = its average over the ranks, in place, all in one call. Returns at once; hooks poll, wait() ends it.
Work begin_average(const Communicator& world, const std::vector<at::Tensor>& tensors, const std::string& tag);

std::uint64_t bytes_of(const std::vector<at::Tensor>& tensors);

}  // namespace reigen::parallel
