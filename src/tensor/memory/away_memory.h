// Memory that is not there: address space, terabytes of it, that takes no memory of its own (64 MiB for all of them),
// reads as NaN in every floating-point type, and ends the program when it is written. Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>

namespace reigen::tensor {

// Null for no bytes.
std::shared_ptr<void> away_memory(std::size_t bytes);

// What a storage holds that is away: is_away() is true of its tensors.
c10::DataPtr away_data(std::shared_ptr<void> memory);

// A contiguous CPU tensor whose memory is all away, until it is given other (set_data).
at::Tensor away_tensor(at::IntArrayRef shape, at::ScalarType type);
// Whether a tensor is one, or a view of one.
bool is_away(const at::Tensor& tensor);

}  // namespace reigen::tensor
