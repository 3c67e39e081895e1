// What tensors must be so that ranks can exchange them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

// Throw InvalidArgument naming the operation.
void check_tensors(const char* operation, const std::vector<at::Tensor>& tensors);  // dense, on the CPU
void check_no_gradient(const char* operation, const std::vector<at::Tensor>& tensors);
void check_has_rows(const char* operation, const at::Tensor& tensor);  // one dimension at least

// Shapes, and whether a gradient is wanted, as a tag for a call: ranks compare it. Long ones by their hash.
std::string shapes_tag(const std::vector<at::Tensor>& tensors);

// The first dimension of every rank's tensor. Throws InvalidArgument on every rank, naming one that does not fit and
// both tensors, unless all else is equal.
std::vector<std::int64_t> rows_of_all(const char* operation, const at::Tensor& tensor, const Communicator& world);

}  // namespace reigen::tensor
