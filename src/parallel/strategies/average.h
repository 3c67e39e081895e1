// The averaging call that most strategies make.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::parallel {

// Returns which thread advances a call that is started while backward runs. `device`: where the call's memory is.
comm::Progress beside_backward(const Communicator& world, const Device& device = {});

// Starts one call that replaces every tensor by its average over the ranks. Does not wait for the call; use the
// returned Work.
Work begin_average(const Communicator& world, const std::vector<at::Tensor>& tensors, const std::string& tag);

// Replaces `tensor` by a new tensor of `count` elements, unless it has this size already. On the CPU its memory is from
// Communicator::allocate.
void ensure_room(at::Tensor& tensor, const Communicator& world, std::int64_t count, at::ScalarType type,
                 const at::Device& device);

std::uint64_t bytes_of(const std::vector<at::Tensor>& tensors);

}  // namespace reigen::parallel
