// Checks whether ranks can exchange tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// The next three functions throw InvalidArgument naming the operation if their condition is not met.
// Condition: the tensors are dense, and they are on the CPU or on the group's device.
void check_tensors(const char* operation, const std::vector<at::Tensor>& tensors, const Communicator& world);
void check_no_gradient(const char* operation, const std::vector<at::Tensor>& tensors);
void check_has_rows(const char* operation, const at::Tensor& tensor);  // condition: at least one dimension

// Returns a tag for a call: a text with the tensors' shapes and whether a gradient is wanted. Ranks compare the tags of
// a call. A long text is replaced by a hash.
std::string shapes_tag(const std::vector<at::Tensor>& tensors);

// The size of the first dimension of every rank's tensor. The other dimensions and the type must be equal on all ranks.
// Otherwise every rank throws InvalidArgument, which names a rank whose tensor differs, and shows both tensors.
std::vector<std::int64_t> rows_of_all(const char* operation, const at::Tensor& tensor, const Communicator& world);

}  // namespace reigen::tensor
