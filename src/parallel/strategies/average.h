// The averaging call that most strategies make.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::parallel {

// Which thread makes the calls progress that a strategy starts while backward runs, on tensors of the host.
comm::Progress beside_backward(const Communicator& world);

// Starts one call that replaces every tensor by its average over the ranks. Returns at once: hooks poll the call, and
// wait() waits for its end.
Work begin_average(const Communicator& world, const std::vector<at::Tensor>& tensors, const std::string& tag);

// Waits for the call that begin_average() started on these tensors. If they are on a GPU, LibTorch's current stream
// waits, and not the host.
void end_average(Work work, const std::vector<at::Tensor>& tensors);

std::uint64_t bytes_of(const std::vector<at::Tensor>& tensors);

}  // namespace reigen::parallel
