// Checks whether ranks can exchange tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// The next three functions throw InvalidArgument, which names the operation, if their condition is not met.
// Condition: the tensors are dense, and they are on the CPU or on the group's device.
void check_tensors(const char* operation, const std::vector<at::Tensor>& tensors, const Communicator& world);
// Condition: autograd does not record operations on the tensors.
void check_no_gradient(const char* operation, const std::vector<at::Tensor>& tensors);
void check_has_rows(const char* operation, const at::Tensor& tensor);  // condition: at least one dimension

// Returns a tag for a call: a text with the tensors' shapes and whether a gradient is wanted. Ranks compare the tags of
// a call. If the text is too long for a tag, it contains a hash of the shapes instead.
std::string shapes_tag(const std::vector<at::Tensor>& tensors);

// Returns the size of the first dimension of every rank's tensor. The other dimensions, the type, and whether a
// gradient is wanted must be equal on all ranks. Otherwise every rank throws InvalidArgument, which names a rank whose
// tensor differs from rank 0's, and shows both tensors. Collective.
std::vector<std::int64_t> rows_of_all(const char* operation, const at::Tensor& tensor, const Communicator& world);

}  // namespace reigen::tensor
