// Cross entropy on the device. The loops come from the host's source (nn/kernels/cross_entropy.inl), except exp and
// log, which are CUDA's.
#include "launch.h"

namespace reigen::nn::kernels {
namespace {

#include "nn/kernels/cross_entropy.inl"

constexpr long long kShortRow = 1024;   // up to so many columns a warp takes a row, otherwise a block of threads
constexpr int kWarpsTogether = 128;     // threads of a block whose warps take a row each
constexpr long long kFewBlocks = 4096;  // of threads that multiply; they fill every GPU

template <typename Row>
cudaError_t start_teams(const device::CrossEntropyCall& call, cudaStream_t stream) {
  if (call.columns <= kShortRow) return start_rows<Row, kWarp, kWarpsTogether>(call, stream);
  return start_rows<Row, kLargestBlock, kLargestBlock>(call, stream);
}

int enqueue(const device::CrossEntropyCall& call, cudaStream_t stream) {
  if (call.rows < 0 || call.columns < 1 || !are_there({call.counted, call.loss})) return cudaErrorInvalidValue;
  if (call.rows > 0 && !are_there({call.logits, call.targets, call.losses})) return cudaErrorInvalidValue;
  cudaError_t result = cudaErrorInvalidValue;
  with_one_type(call.types, [&]<typename T>() {
    result = start_once<CountTargets>(call, stream);
    if (result == cudaSuccess && call.rows > 0) {
      result = fit_packs(T::kWidth, {call.logits, call.gradients}, {call.columns})
                   ? start_teams<CrossEntropyRow<T>>(call, stream)
                   : start_teams<CrossEntropyRow<typename T::Single>>(call, stream);
    }
    if (result == cudaSuccess) result = start_once<MeanLoss<typename T::Single>>(call, stream);
  });
  return forgotten(result);
}

int enqueue(const device::MultiplyCall& call, cudaStream_t stream) {
  if (call.count < 0 || call.factor == nullptr || (call.count > 0 && call.values == nullptr)) {
    return cudaErrorInvalidValue;
  }
  cudaError_t result = cudaErrorInvalidValue;
  with_one_type(call.types, [&]<typename T>() {
    result = cudaSuccess;
    if (call.count == 0) return;
    result = fit_packs(T::kWidth, {call.values}, {call.count})
                 ? start_columns<Multiply<T>, T::kWidth>(call, call.count, 1, stream, kFewBlocks)
                 : start_columns<Multiply<typename T::Single>, 1>(call, call.count, 1, stream, kFewBlocks);
  });
  return forgotten(result);
}

}  // namespace
}  // namespace reigen::nn::kernels

extern "C" int reigen_cuda_cross_entropy(const reigen::device::CrossEntropyCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}

extern "C" int reigen_cuda_multiply(const reigen::device::MultiplyCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}
