// Address space without memory of its own, terabytes if need be. All areas together take at most 66 MiB. It reads as
// NaN in every floating-point type, and writing to it ends the program. Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>

namespace reigen::tensor {

// Returns null for 0 bytes.
std::shared_ptr<void> away_memory(std::size_t bytes);

// The data of a storage whose memory is away: is_away() is true of its tensors.
c10::DataPtr away_data(std::shared_ptr<void> memory);

// A contiguous CPU tensor whose memory is all away, until it is given other memory (set_data).
at::Tensor away_tensor(at::IntArrayRef shape, at::ScalarType type);
// Whether a tensor is such a tensor, or a view of one.
bool is_away(const at::Tensor& tensor);

}  // namespace reigen::tensor
