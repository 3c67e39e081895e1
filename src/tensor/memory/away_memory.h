// Makes areas of address space without memory of their own, terabytes if need be. All areas together take at most 66
// MiB of memory. Reading an area gives NaN in every floating-point type, and writing to an area ends the program. The
// memory of a CPU tensor is away if the tensor lies in such an area.
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <memory>

namespace reigen::tensor {

// Returns an area of `bytes` bytes, or null for 0 bytes.
std::shared_ptr<void> away_memory(std::size_t bytes);

// Makes the data pointer of a storage whose memory is away. is_away() is true for the tensors of this storage.
// `memory` is the result of away_memory().
c10::DataPtr away_data(std::shared_ptr<void> memory);

// A contiguous tensor over `data`, which is memory of `data`'s device, or null.
at::Tensor tensor_over(c10::DataPtr data, at::IntArrayRef shape, at::ScalarType type);
// A contiguous tensor whose memory is all away, until it is given other memory (set_data). On a GPU a kernel that reads
// the tensor fails.
at::Tensor away_tensor(at::IntArrayRef shape, at::ScalarType type, const at::Device& device = at::kCPU);
// Whether the memory of `tensor` is away. On the CPU this is true for an away_tensor(), a tensor over away_data(), and
// views of them. On a GPU it is true if the tensor's storage has no memory.
bool is_away(const at::Tensor& tensor);

}  // namespace reigen::tensor
