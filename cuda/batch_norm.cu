// Batch normalisation with an addition and ReLU, on the device. The loops come from the host's source
// (nn/kernels/batch_norm.inl), so results have the bits of the host.
#include "launch.h"

namespace reigen::nn::kernels {
namespace {

#include "nn/kernels/batch_norm.inl"

// The functions below begin with the checks that all calls share.
template <typename Call>
bool is_possible(const Call& call) {
  return call.rows >= 0 && call.columns >= 1 && are_there({call.input, call.mean, call.rstd});
}

// Block<TypesOf<...>> is the function of a block of rows.
template <template <typename> class Block, typename T, typename Call>
cudaError_t start_blocks(const Call& call, std::int64_t blocks, bool in_packs, cudaStream_t stream) {
  if (call.rows == 0) return cudaSuccess;
  if (in_packs) return start_packs<Block<T>, T::kWidth>(call, call.columns, blocks, stream);
  return start_packs<Block<typename T::Single>, 1>(call, call.columns, blocks, stream);
}

int enqueue(const device::BatchStatisticsCall& call, cudaStream_t stream) {
  if (!is_possible(call) || call.rows < 1 || call.parts == nullptr) return cudaErrorInvalidValue;
  if (!(call.eps >= 0) || (call.running_mean == nullptr) != (call.running_var == nullptr)) return cudaErrorInvalidValue;
  cudaError_t result = cudaErrorInvalidValue;
  with_types(call.types, [&]<typename T>() {
    const bool in_packs = fit_packs(T::kWidth, {call.input, call.parts}, {call.columns});
    result = start_blocks<BatchSums, T>(call, device::batch_sums_of(call.rows), in_packs, stream);
    if (result == cudaSuccess) result = start_two_sums<BatchStatistics<T>>(call, stream);
  });
  return forgotten(result);
}

int enqueue(const device::BatchNormCall& call, cudaStream_t stream) {
  if (!is_possible(call) || call.output == nullptr) return cudaErrorInvalidValue;
  cudaError_t result = cudaErrorInvalidValue;
  with_types(call.types, [&]<typename T>() {
    const bool in_packs =
        fit_packs(T::kWidth, {call.input, call.residual, call.weight, call.bias, call.mean, call.rstd, call.output},
                  {call.columns});
    result = start_blocks<BatchNorm, T>(call, device::sums_of(call.rows), in_packs, stream);
  });
  return forgotten(result);
}

int enqueue(const device::BatchNormSumsCall& call, cudaStream_t stream) {
  if (!is_possible(call)) return cudaErrorInvalidValue;
  if (!are_there({call.of_output, call.parts, call.of_weight, call.of_bias})) return cudaErrorInvalidValue;
  cudaError_t result = cudaErrorInvalidValue;
  with_types(call.types, [&]<typename T>() {
    using C = typename T::Computed;
    using Sums = TypesOf<Plain<C>, Plain<C>, 1>;
    const bool in_packs = fit_packs(T::kWidth,
                                    {call.of_output, call.input, call.output, call.weight, call.bias, call.mean,
                                     call.rstd, call.of_residual, call.parts},
                                    {call.columns});
    const auto* const parts = static_cast<const C*>(call.parts);
    const std::int64_t blocks = device::batch_sums_of(call.rows);
    result = start_blocks<BatchNormSums, T>(call, blocks, in_packs, stream);
    if (result == cudaSuccess) result = start_add_blocks<Sums>(parts, call.of_weight, blocks, call.columns, stream);
    if (result != cudaSuccess) return;
    result = start_add_blocks<Sums>(parts + blocks * call.columns, call.of_bias, blocks, call.columns, stream);
  });
  return forgotten(result);
}

int enqueue(const device::BatchNormBackwardCall& call, cudaStream_t stream) {
  if (!is_possible(call) || !are_there({call.of_output, call.of_input})) return cudaErrorInvalidValue;
  if ((call.of_weight == nullptr) != (call.of_bias == nullptr)) return cudaErrorInvalidValue;
  cudaError_t result = cudaErrorInvalidValue;
  with_types(call.types, [&]<typename T>() {
    const bool in_packs = fit_packs(T::kWidth,
                                    {call.of_output, call.input, call.weight, call.bias, call.mean, call.rstd,
                                     call.of_weight, call.of_bias, call.of_input},
                                    {call.columns});
    result = start_blocks<BatchNormBackward, T>(call, device::sums_of(call.rows), in_packs, stream);
  });
  return forgotten(result);
}

}  // namespace
}  // namespace reigen::nn::kernels

extern "C" int reigen_cuda_batch_statistics(const reigen::device::BatchStatisticsCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}

extern "C" int reigen_cuda_batch_norm(const reigen::device::BatchNormCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}

extern "C" int reigen_cuda_batch_norm_sums(const reigen::device::BatchNormSumsCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}

extern "C" int reigen_cuda_batch_norm_backward(const reigen::device::BatchNormBackwardCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}
