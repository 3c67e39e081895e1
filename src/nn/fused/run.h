// Runs the calls of device/model_calls.h on tensors: on the CPU with LibTorch's threads, on a GPU as kernels on
// LibTorch's current stream. Also the checks and types that these operations share.
// Thread rule: any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <initializer_list>

#include "device/model_calls.h"

namespace reigen::nn::fused {

// Runs the call on the device of `on`. Call is a struct of device/model_calls.h. On a GPU the host does not wait: the
// tensors of the call may be dropped at once, because LibTorch reuses their memory only for later work on the stream.
// Throws BackendError if CUDA refuses a kernel.
template <class Call>
void run(const at::Tensor& on, const Call& call);

// fp64 for fp64, else fp32.
inline at::ScalarType computed(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }
inline bool is_16_bit(at::ScalarType type) { return type == at::kBFloat16 || type == at::kHalf; }

// Returns the device::ModelTypes, as a number, that stands for these two types. have_number() says whether there is
// one: the types must be equal, or fp32 and a type of 16 bits.
int number_of(at::ScalarType wide, at::ScalarType narrow);
inline bool have_number(at::ScalarType wide, at::ScalarType narrow) {
  return wide == narrow || (wide == at::kFloat && is_16_bit(narrow));
}

// The type into which autocast converts the input of a matrix product, or `type` if it converts nothing: it is off, or
// `type` is not fp32.
at::ScalarType autocast_type(const at::Tensor& tensor, at::ScalarType type);

// Throws InvalidArgument unless all tensors that are defined are on one device, the CPU or a GPU, and their type is
// fp64, fp32, bf16 or fp16. `what` is the name of the operation.
void check_tensors(const char* what, std::initializer_list<const at::Tensor*> tensors);
// Throws InvalidArgument unless `per_column` is undefined or has the shape [size of the last dimension of x].
void check_columns(const char* what, const char* name, const at::Tensor& x, const at::Tensor& per_column);

inline std::int64_t columns_of(const at::Tensor& x) { return x.size(-1); }
inline std::int64_t rows_of(const at::Tensor& x) { return x.numel() / x.size(-1); }

// Addresses for a call; null for an undefined tensor.
inline const void* address(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }
inline void* target(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

}  // namespace reigen::nn::fused
