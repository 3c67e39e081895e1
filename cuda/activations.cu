// GELU with a bias, and SwiGLU, on the device. The loops come from the host's source (nn/kernels/activations.inl),
// except exp and erf, which are CUDA's.
#include "launch.h"

namespace reigen::nn::kernels {
namespace {

#include "nn/kernels/activations.inl"

bool has_sizes(long long rows, long long columns) { return rows >= 0 && columns >= 1; }

// Block<TypesOf<...>> is the function of a block of rows.
template <template <typename> class Block, typename T, typename Call>
cudaError_t start_blocks(const Call& call, bool in_packs, cudaStream_t stream) {
  if (call.rows == 0) return cudaSuccess;
  const std::int64_t blocks = device::sums_of(call.rows);
  if (in_packs) return start_columns<Block<T>, T::kWidth>(call, call.columns, blocks, stream);
  return start_columns<Block<typename T::Single>, 1>(call, call.columns, blocks, stream);
}

int enqueue(const device::GeluCall& call, cudaStream_t stream) {
  if (!has_sizes(call.rows, call.columns)) return cudaErrorInvalidValue;
  if (call.rows > 0 && !are_there({call.input, call.output})) return cudaErrorInvalidValue;
  cudaError_t result = cudaErrorInvalidValue;
  with_types(call.types, [&]<typename T>() {
    const bool in_packs = fit_packs(T::kWidth, {call.input, call.bias, call.output}, {call.columns});
    result = start_blocks<Gelu, T>(call, in_packs, stream);
  });
  return forgotten(result);
}

int enqueue(const device::GeluBackwardCall& call, cudaStream_t stream) {
  if (!has_sizes(call.rows, call.columns) || (call.parts == nullptr) != (call.of_bias == nullptr)) {
    return cudaErrorInvalidValue;
  }
  if (call.rows > 0 && !are_there({call.of_output, call.input, call.of_input})) return cudaErrorInvalidValue;
  cudaError_t result = cudaErrorInvalidValue;
  with_types(call.types, [&]<typename T>() {
    const bool in_packs =
        fit_packs(T::kWidth, {call.of_output, call.input, call.bias, call.of_input, call.parts}, {call.columns});
    result = start_blocks<GeluBackward, T>(call, in_packs, stream);
    if (result != cudaSuccess || call.of_bias == nullptr) return;
    result = start_add_blocks<typename T::Single>(static_cast<const typename T::Computed*>(call.parts), call.of_bias,
                                                  device::sums_of(call.rows), call.columns, stream);
  });
  return forgotten(result);
}

int enqueue(const device::SwigluCall& call, cudaStream_t stream) {
  if (!has_sizes(call.rows, call.columns)) return cudaErrorInvalidValue;
  if (call.rows > 0 && !are_there({call.gate, call.up, call.output})) return cudaErrorInvalidValue;
  cudaError_t result = cudaErrorInvalidValue;
  with_one_type(call.types, [&]<typename T>() {
    const bool in_packs =
        fit_packs(T::kWidth, {call.gate, call.up, call.output}, {call.columns, call.gate_stride, call.up_stride});
    result = start_blocks<Swiglu, T>(call, in_packs, stream);
  });
  return forgotten(result);
}

int enqueue(const device::SwigluBackwardCall& call, cudaStream_t stream) {
  if (!has_sizes(call.rows, call.columns)) return cudaErrorInvalidValue;
  if (call.rows > 0 && !are_there({call.of_output, call.gate, call.up, call.of_gate, call.of_up})) {
    return cudaErrorInvalidValue;
  }
  cudaError_t result = cudaErrorInvalidValue;
  with_one_type(call.types, [&]<typename T>() {
    const bool in_packs =
        fit_packs(T::kWidth, {call.of_output, call.gate, call.up, call.of_gate, call.of_up},
                  {call.columns, call.gate_stride, call.up_stride, call.of_gate_stride, call.of_up_stride});
    result = start_blocks<SwigluBackward, T>(call, in_packs, stream);
  });
  return forgotten(result);
}

}  // namespace
}  // namespace reigen::nn::kernels

extern "C" int reigen_cuda_gelu(const reigen::device::GeluCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}

extern "C" int reigen_cuda_gelu_backward(const reigen::device::GeluBackwardCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}

extern "C" int reigen_cuda_swiglu(const reigen::device::SwigluCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}

extern "C" int reigen_cuda_swiglu_backward(const reigen::device::SwigluBackwardCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}
