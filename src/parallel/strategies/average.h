// The averaging call that most strategies make.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::parallel {

// Which thread makes the calls progress that are started while backward runs, on memory of this device.
comm::Progress beside_backward(const Communicator& world, const Device& device = {});

// Starts one call that replaces every tensor by its average over the ranks. Returns at once: hooks poll the call, and
// wait() waits for its end.
Work begin_average(const Communicator& world, const std::vector<at::Tensor>& tensors, const std::string& tag);

// Gives `tensor` this many elements, unless it has them: in memory that all ranks see, or on a GPU.
void ensure_room(at::Tensor& tensor, const Communicator& world, std::int64_t count, at::ScalarType type,
                 const at::Device& device);

std::uint64_t bytes_of(const std::vector<at::Tensor>& tensors);

}  // namespace reigen::parallel
