// Rotary position embedding, and the gradient of an embedding's weight, on the device. The loops come from the host's
// source (nn/kernels/tokens.inl) and give the host's bits.
#include "launch.h"

namespace reigen::nn::kernels {
namespace {

#include "nn/kernels/tokens.inl"

constexpr int kThreads = 128;  // of a block
constexpr long long kMostPairs = 0x7fffffff;

int enqueue(const device::RotaryCall& call, cudaStream_t stream) {
  if (call.rows < 0 || call.positions < 1 || call.rows % call.positions != 0 || call.heads < 1 || call.half < 1 ||
      call.half > kMostPairs / call.heads) {
    return cudaErrorInvalidValue;
  }
  if (call.rows > 0 && !are_there({call.input, call.output, call.cosines, call.sines})) return cudaErrorInvalidValue;
  const device::RotaryStrides& from = call.input_strides;
  const device::RotaryStrides& to = call.output_strides;
  cudaError_t result = cudaErrorInvalidValue;
  with_one_type(call.types, [&]<typename T>() {
    result = cudaSuccess;
    if (call.rows == 0) return;
    const bool in_packs = fit_packs(T::kWidth, {call.input, call.output, call.cosines, call.sines},
                                    {call.half, from.batch, from.position, from.head, to.batch, to.position, to.head});
    result = in_packs ? start_rows<RotaryRow<T>, kThreads, kThreads>(call, stream)
                      : start_rows<RotaryRow<typename T::Single>, kThreads, kThreads>(call, stream);
  });
  return forgotten(result);
}

int enqueue(const device::EmbeddingSumsCall& call, cudaStream_t stream) {
  if (call.rows < 0 || call.columns < 1 || call.tokens < 1) return cudaErrorInvalidValue;
  if (call.rows > 0 && !are_there({call.of_output, call.sorted, call.order, call.of_weight})) {
    return cudaErrorInvalidValue;
  }
  cudaError_t result = cudaErrorInvalidValue;
  with_one_type(call.types, [&]<typename T>() {
    result = cudaSuccess;
    if (call.rows == 0) return;
    result = fit_packs(T::kWidth, {call.of_output, call.of_weight}, {call.columns})
                 ? start_rows<EmbeddingRun<T>, kThreads, kThreads>(call, stream)
                 : start_rows<EmbeddingRun<typename T::Single>, kThreads, kThreads>(call, stream);
  });
  return forgotten(result);
}

}  // namespace
}  // namespace reigen::nn::kernels

extern "C" int reigen_cuda_rotary(const reigen::device::RotaryCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}

extern "C" int reigen_cuda_embedding_sums(const reigen::device::EmbeddingSumsCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}
