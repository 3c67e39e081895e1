// Makes tensors in memory that other ranks can reach, and tensors that take memory only for a part of their elements.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// A one-dimensional tensor of zeros, in memory from Communicator::allocate. For a tensor on a GPU, calls of `world`
// must be possible on the GPU's memory (Communicator::device()). When the last tensor over this memory is destroyed,
// the host waits for the GPU.
at::Tensor shared_tensor(const Communicator& world, std::int64_t count, at::ScalarType type,
                         const at::Device& device = at::kCPU);

// The same as shared_tensor() on the CPU, but all ranks get the same memory. Collective. Throws BackendError if the
// ranks share no memory.
at::Tensor common_tensor(const Communicator& world, std::int64_t count, at::ScalarType type);

// A one-dimensional tensor of zeros in memory of this process alone. In large tensors (1 MiB, or `of_part`) a page
// takes memory only when it is first written, and all of it is given back when the last tensor over it is destroyed.
// `of_part`: most of it will never be written, so the system need not have as much memory.
at::Tensor lazy_tensor(std::int64_t count, at::ScalarType type, bool of_part = false);

// A tensor that is needed for a moment. On the host its memory does not come from LibTorch, which may keep the memory
// that is given back to it. The values are undefined.
at::Tensor brief_tensor(at::IntArrayRef shape, const at::TensorOptions& options);

// A one-dimensional tensor of `count` elements on a GPU, of which only elements [first, last) have memory. These
// elements are zeros. The other elements must not be used.
at::Tensor part_of_tensor(std::int64_t count, at::ScalarType type, std::int64_t first, std::int64_t last,
                          const at::Device& gpu);

// The same, but the elements are in pinned memory of the host. Kernels and copies of the GPU reach it by its address,
// so LibTorch uses it as any other tensor of the GPU. When the last tensor over this memory is destroyed, the host
// waits for the GPU.
at::Tensor pinned_part_of_tensor(std::int64_t count, at::ScalarType type, std::int64_t first, std::int64_t last,
                                 const at::Device& gpu);

// A one-dimensional tensor over `memory`, which is on `device`. The caller keeps the memory alive.
at::Tensor tensor_over(void* memory, std::int64_t count, at::ScalarType type, const at::Device& device);

// Replaces `tensor` by a new shared_tensor() of `count` elements of this type, unless it has this size and type
// already.
void ensure_shared(at::Tensor& tensor, const Communicator& world, std::int64_t count, at::ScalarType type);

}  // namespace reigen::tensor
