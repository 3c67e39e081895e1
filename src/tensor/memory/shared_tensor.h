// Tensors in memory that the other ranks can reach.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// A one-dimensional tensor of zeros, in memory from Communicator::allocate.
at::Tensor shared_tensor(const Communicator& world, std::int64_t count, at::ScalarType type);

// The same, as one memory of all ranks. Collective; throws BackendError where ranks share no memory.
at::Tensor common_tensor(const Communicator& world, std::int64_t count, at::ScalarType type);

// A one-dimensional tensor of zeros, of this process alone. A page takes memory only when it is first written.
at::Tensor lazy_tensor(std::int64_t count, at::ScalarType type);

// Makes `tensor` a shared_tensor() of this size and type, unless it is one.
void ensure_shared(at::Tensor& tensor, const Communicator& world, std::int64_t count, at::ScalarType type);

}  // namespace reigen::tensor
