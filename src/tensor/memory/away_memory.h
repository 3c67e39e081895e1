// Address space without memory of its own, terabytes if need be. All such areas together take at most 66 MiB of memory.
// Reading an area gives NaN in every floating-point type, and writing to an area ends the program.
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>

namespace reigen::tensor {

// Returns null for 0 bytes.
std::shared_ptr<void> away_memory(std::size_t bytes);

// Makes the data pointer of a storage whose memory is away. is_away() is true for the tensors of this storage.
// `memory`: the result of away_memory().
c10::DataPtr away_data(std::shared_ptr<void> memory);

// A contiguous CPU tensor whose memory is all away, until it is given other memory (set_data).
at::Tensor away_tensor(at::IntArrayRef shape, at::ScalarType type);
// Whether the memory of `tensor` is away: it is an away_tensor(), a tensor over away_data(), or a view of one of them;
// or a tensor of a GPU whose storage has no memory.
bool is_away(const at::Tensor& tensor);

}  // namespace reigen::tensor
