// Tensors in memory that the other ranks can reach.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// One-dimensional, zero.
at::Tensor shared_tensor(const Communicator& world, std::int64_t count, at::ScalarType type);

// The same, one memory of all ranks. Collective; throws BackendError where ranks share no memory.
at::Tensor common_tensor(const Communicator& world, std::int64_t count, at::ScalarType type);

// One-dimensional, zero, of this process alone: a page takes memory from when it is written.
at::Tensor lazy_tensor(std::int64_t count, at::ScalarType type);

// Makes `tensor` one of this size and type, unless it is.
void ensure_shared(at::Tensor& tensor, const Communicator& world, std::int64_t count, at::ScalarType type);

}  // namespace reigen::tensor
