// Checks whether ranks can exchange tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// These throw InvalidArgument naming the operation.
// The tensors are dense, and on the CPU or on the group's device.
void check_tensors(const char* operation, const std::vector<at::Tensor>& tensors, const Communicator& world);
void check_no_gradient(const char* operation, const std::vector<at::Tensor>& tensors);
void check_has_rows(const char* operation, const at::Tensor& tensor);  // one dimension at least

// Shapes, and whether a gradient is wanted, as the tag of a call: ranks compare it. Long texts are replaced by a hash.
std::string shapes_tag(const std::vector<at::Tensor>& tensors);

// The first dimension of every rank's tensor. All else must be equal on all ranks: otherwise throws InvalidArgument on
// every rank, naming a rank that does not fit, and both tensors.
std::vector<std::int64_t> rows_of_all(const char* operation, const at::Tensor& tensor, const Communicator& world);

}  // namespace reigen::tensor
