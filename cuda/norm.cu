// LayerNorm and RMSNorm on the device. The loops come from the host's source (nn/kernels/norm.inl). nvcc must round
// every operation on its own, as -ffp-contract=off does on the host: cuda/CMakeLists.txt has the flags.
#include "launch.h"

namespace reigen::nn::kernels {
namespace {

#include "nn/kernels/norm.inl"

constexpr long long kShortRow = 1024;  // up to so many columns a warp takes a row, otherwise a block of threads
constexpr int kThreads = 256;
constexpr int kWarpsTogether = 128;  // threads of a block whose warps take a row each

template <typename Row, typename Call>
cudaError_t start_teams(const Call& call, cudaStream_t stream) {
  if (call.columns <= kShortRow) return start_rows<Row, kWarp, kWarpsTogether>(call, stream);
  return start_rows<Row, kThreads, kThreads>(call, stream);
}

template <typename T>
cudaError_t start_sums(const device::NormSumsCall& call, bool in_packs, cudaStream_t stream) {
  using Single = typename T::Single;
  const std::int64_t blocks = device::sums_of(call.rows);
  const auto* const parts = static_cast<const typename T::Computed*>(call.parts);
  cudaError_t result = cudaSuccess;
  if (call.rows > 0) {
    result = in_packs ? start_columns<NormSums<T>, T::kWidth>(call, call.columns, blocks, stream)
                      : start_columns<NormSums<Single>, 1>(call, call.columns, blocks, stream);
  }
  if (result == cudaSuccess) result = start_add_blocks<Single>(parts, call.of_weight, blocks, call.columns, stream);
  if (result != cudaSuccess || call.of_bias == nullptr) return result;
  return start_add_blocks<Single>(parts + blocks * call.columns, call.of_bias, blocks, call.columns, stream);
}

bool has_sizes(long long rows, long long columns) { return rows >= 0 && columns >= 1; }

int enqueue(const device::NormCall& call, cudaStream_t stream) {
  if (!has_sizes(call.rows, call.columns) || !(call.eps >= 0)) return cudaErrorInvalidValue;
  if (!are_there({call.input, call.output, call.rstd}) || (call.sum == nullptr) != (call.added == nullptr)) {
    return cudaErrorInvalidValue;
  }
  cudaError_t result = cudaErrorInvalidValue;
  with_types(call.types, [&]<typename T>() {
    result = cudaSuccess;
    if (call.rows == 0) return;
    const bool in_packs =
        fit_packs(T::kWidth, {call.input, call.added, call.sum, call.weight, call.bias, call.output}, {call.columns});
    result = in_packs ? start_teams<NormRow<T>>(call, stream) : start_teams<NormRow<typename T::Single>>(call, stream);
  });
  return forgotten(result);
}

int enqueue(const device::NormBackwardCall& call, cudaStream_t stream) {
  if (!has_sizes(call.rows, call.columns)) return cudaErrorInvalidValue;
  if (!are_there({call.of_output, call.sum, call.rstd, call.of_input})) return cudaErrorInvalidValue;
  cudaError_t result = cudaErrorInvalidValue;
  with_types(call.types, [&]<typename T>() {
    result = cudaSuccess;
    if (call.rows == 0) return;
    const bool in_packs = fit_packs(
        T::kWidth, {call.of_output, call.of_sum, call.sum, call.weight, call.of_input, call.of_added}, {call.columns});
    result = in_packs ? start_teams<NormBackwardRow<T>>(call, stream)
                      : start_teams<NormBackwardRow<typename T::Single>>(call, stream);
  });
  return forgotten(result);
}

int enqueue(const device::NormSumsCall& call, cudaStream_t stream) {
  if (!has_sizes(call.rows, call.columns)) return cudaErrorInvalidValue;
  if (!are_there({call.of_output, call.sum, call.rstd, call.parts, call.of_weight})) return cudaErrorInvalidValue;
  cudaError_t result = cudaErrorInvalidValue;
  with_types(call.types, [&]<typename T>() {
    const bool in_packs = fit_packs(T::kWidth, {call.of_output, call.sum, call.parts}, {call.columns});
    result = start_sums<T>(call, in_packs, stream);
  });
  return forgotten(result);
}

}  // namespace
}  // namespace reigen::nn::kernels

extern "C" int reigen_cuda_norm(const reigen::device::NormCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}

extern "C" int reigen_cuda_norm_backward(const reigen::device::NormBackwardCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}

extern "C" int reigen_cuda_norm_sums(const reigen::device::NormSumsCall* call, void* stream) {
  if (call == nullptr) return cudaErrorInvalidValue;
  return reigen::nn::kernels::enqueue(*call, static_cast<cudaStream_t>(stream));
}
