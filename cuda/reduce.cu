// Reductions on the device: one kernel a call. The results have the same bits as those of comm::reduce::run.
//
// The element types, the operations and the choice of a kernel come from the host's source (elements.inl, choice.inl).
// nvcc must round every operation on its own, as -ffp-contract=off does on the host: cuda/CMakeLists.txt has the flags.
//
// A thread reads 16 bytes of every input, folds them in the order of the inputs, and writes 16 bytes of every output.
// This is right in place too, because no other thread reads or writes these bytes.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "device/kernel_calls.h"
#include "last_error.h"
#include "reigen/comm/types.h"

namespace reigen::device {
namespace {

using comm::DataType;
using comm::ReduceOp;

#include "comm/reduce/elements.inl"

constexpr std::size_t kVector = 16;      // bytes of one access
constexpr unsigned kThreads = 256;       // threads of a block
constexpr unsigned kResidentBlocks = 4;  // an SM has enough registers for so many blocks
constexpr unsigned kBlocksPerSm = 32;    // several times as many as are resident, so that no SM waits long at the end
constexpr int kFewRanks = 8;             // each number of inputs up to this one has a kernel of its own
constexpr std::size_t kMostVectors = 1u << 31;  // so that indices of vectors fit into 32 bits
constexpr int kKnownDevices = 64;

// The members that choice.inl uses, and those that a launch needs.
struct Pass {
  const ReduceCall* call;
  cudaStream_t stream;
  cudaError_t* result;
  int input_count;
  std::size_t count;
  DataType type;
  ReduceOp op;
  const double* factors;
  int divisor;
};

template <int kMost>
struct Buffers {
  const std::byte* inputs[kMost];
  std::byte* outputs[kMost];
  int input_count;
  int output_count;
};

// `single` elements are in no whole vector. `head` of them come before the first vector, the others after the last
// vector.
struct Extent {
  unsigned vectors;
  unsigned head;
  std::size_t single;
};

struct Unweighted {
  template <typename A>
  __device__ A operator()(A value, int) const {
    return value;
  }
};

// Multiplies every input by its own factor. The factors are rounded to the accumulator's type.
template <typename A>
struct Weighted {
  A factors[kReduceRanks];
  __device__ A operator()(A value, int q) const { return value * factors[q]; }
};

template <typename Storage>
struct Vector {
  static constexpr int kWidth = static_cast<int>(kVector / sizeof(Storage));
  Storage at[kWidth];
};

// The number of inputs that are read before they are folded, if the compiler does not know the number of all inputs. It
// is smaller for elements of one byte, because their vectors need more registers.
template <typename Storage>
constexpr int kReadAhead = sizeof(Storage) == 1 ? 2 : 4;

template <typename Storage>
__device__ Vector<Storage> read_vector(const std::byte* from) {
  return __builtin_bit_cast(Vector<Storage>, *reinterpret_cast<const uint4*>(from));
}

template <typename Storage>
__device__ void write_vector(std::byte* to, const Vector<Storage>& value) {
  *reinterpret_cast<uint4*>(to) = __builtin_bit_cast(uint4, value);
}

// Folds the vectors at byte `at` of all inputs. `kInputs`: the number of inputs if the compiler knows it; the function
// then reads all inputs before it folds them. If `kInputs` is 0, the number is in `buffers`.
template <typename Element, typename Op, int kInputs, typename Few, typename Weights, typename Finish>
__device__ Vector<typename Element::Storage> fold_vectors(const Few& buffers, std::size_t at, const Weights& weights,
                                                          Finish finish) {
  using Storage = typename Element::Storage;
  constexpr int kWidth = Vector<Storage>::kWidth;
  typename Element::Accumulator folded[kWidth];
  const auto add = [&](const Vector<Storage>& input, int q) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const auto value = weights(Element::load(input.at[i]), q);
      folded[i] = q == 0 ? value : Op::apply(folded[i], value);
    }
  };
  if constexpr (kInputs > 0) {
    Vector<Storage> inputs[kInputs];
#pragma unroll
    for (int q = 0; q < kInputs; ++q) inputs[q] = read_vector<Storage>(buffers.inputs[q] + at);
#pragma unroll
    for (int q = 0; q < kInputs; ++q) add(inputs[q], q);
  } else {
    add(read_vector<Storage>(buffers.inputs[0] + at), 0);
#pragma unroll kReadAhead < Storage>
    for (int q = 1; q < buffers.input_count; ++q) add(read_vector<Storage>(buffers.inputs[q] + at), q);
  }
  Vector<Storage> result;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) result.at[i] = Element::store(finish(folded[i]));
  return result;
}

template <typename Element, typename Op, int kInputs, typename Weights, typename Finish>
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    reduce(const __grid_constant__ Buffers<kInputs == 0 ? kReduceRanks : kFewRanks> buffers, const Extent extent,
           const __grid_constant__ Weights weights, const Finish finish) {
  using Storage = typename Element::Storage;
  const unsigned first = blockIdx.x * kThreads + threadIdx.x;
  const unsigned step = gridDim.x * kThreads;
  for (unsigned v = first; v < extent.vectors; v += step) {
    const std::size_t at = extent.head * sizeof(Storage) + v * kVector;
    const auto result = fold_vectors<Element, Op, kInputs>(buffers, at, weights, finish);
#pragma unroll 4
    for (int q = 0; q < buffers.output_count; ++q) write_vector(buffers.outputs[q] + at, result);
  }
  for (std::size_t e = first; e < extent.single; e += step) {
    const std::size_t i = e < extent.head ? e : e + std::size_t{extent.vectors} * Vector<Storage>::kWidth;
    const auto input = [&](int q) {
      return weights(Element::load(reinterpret_cast<const Storage*>(buffers.inputs[q])[i]), q);
    };
    auto folded = input(0);
#pragma unroll 4
    for (int q = 1; q < buffers.input_count; ++q) folded = Op::apply(folded, input(q));
    const Storage result = Element::store(finish(folded));
    for (int q = 0; q < buffers.output_count; ++q) reinterpret_cast<Storage*>(buffers.outputs[q])[i] = result;
  }
}

std::size_t remainder_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % kVector; }

bool all_have_remainder(const ReduceCall& call, std::size_t remainder) {
  for (int q = 0; q < call.input_count; ++q) {
    if (remainder_of(call.inputs[q]) != remainder) return false;
  }
  for (int q = 0; q < call.output_count; ++q) {
    if (remainder_of(call.outputs[q]) != remainder) return false;
  }
  return true;
}

Extent extent_of(const Pass& pass, std::size_t element_bytes) {
  const std::size_t remainder = remainder_of(pass.call->inputs[0]);
  if (!all_have_remainder(*pass.call, remainder)) return {0, 0, pass.count};
  const std::size_t head = remainder == 0 ? 0 : (kVector - remainder) / element_bytes;
  if (head >= pass.count) return {0, 0, pass.count};
  const std::size_t width = kVector / element_bytes;
  const std::size_t whole = (pass.count - head) / width;
  const std::size_t vectors = whole < kMostVectors ? whole : kMostVectors;
  return {static_cast<unsigned>(vectors), static_cast<unsigned>(head), pass.count - vectors * width};
}

// The number of multiprocessors of the current device. For the first kKnownDevices devices the runtime is asked only
// once, because the number never changes while the process lives.
cudaError_t multiprocessors_here(unsigned* multiprocessors) {
  static std::atomic<int> known[kKnownDevices];
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  int count = device < kKnownDevices ? known[device].load(std::memory_order_relaxed) : 0;
  if (count == 0) error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  if (device < kKnownDevices) known[device].store(count, std::memory_order_relaxed);
  *multiprocessors = static_cast<unsigned>(count);
  return cudaSuccess;
}

template <typename Element, typename Op, int kInputs, typename Weights, typename Finish>
void launch(const Pass& pass, Weights weights, Finish finish) {
  unsigned multiprocessors = 0;
  *pass.result = multiprocessors_here(&multiprocessors);
  if (*pass.result != cudaSuccess) return;
  const ReduceCall& call = *pass.call;
  Buffers<kInputs == 0 ? kReduceRanks : kFewRanks> buffers{};
  buffers.input_count = call.input_count;
  buffers.output_count = call.output_count;
  for (int q = 0; q < call.input_count; ++q) buffers.inputs[q] = static_cast<const std::byte*>(call.inputs[q]);
  for (int q = 0; q < call.output_count; ++q) buffers.outputs[q] = static_cast<std::byte*>(call.outputs[q]);
  Extent extent = extent_of(pass, sizeof(typename Element::Storage));
  const std::size_t most = kBlocksPerSm * multiprocessors;
  const std::size_t work = extent.vectors > extent.single ? extent.vectors : extent.single;
  const std::size_t needed = (work + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(needed < most ? needed : most);
  void* parameters[] = {&buffers, &extent, &weights, &finish};
  // Takes the launch's own error, because cudaGetLastError() could return an error of other code.
  *pass.result = cudaLaunchKernel(reinterpret_cast<const void*>(&reduce<Element, Op, kInputs, Weights, Finish>),
                                  dim3(blocks), dim3(kThreads), parameters, 0, pass.stream);
}

// The types that gradients have.
template <typename Element>
struct IsCommon {
  static constexpr bool value = IsSame<Element, Plain<float>>::value || IsSame<typename Element::Storage, Half>::value;
};

template <typename Element, int kInputs, typename Finish>
void launch_few(const Pass& pass, Finish finish) {
  if (pass.input_count == kInputs) return launch<Element, Sum, kInputs>(pass, Unweighted{}, finish);
  if constexpr (kInputs < kFewRanks) launch_few<Element, kInputs + 1>(pass, finish);
}

template <typename Element, typename Op, typename Finish>
void run_pass(const Pass& pass, Finish finish) {
  using A = typename Element::Accumulator;
  constexpr bool kFloatSum = IsFloat<A>::value && IsSame<Op, Sum>::value;
  if constexpr (kFloatSum && IsSame<Finish, Keep<A>>::value) {
    run_pass<Element, Op>(pass, Scale<A>{A(1)});  // a factor of 1 changes no bit, and saves a second set of kernels
  } else {
    if constexpr (kFloatSum && IsCommon<Element>::value && IsSame<Finish, Scale<A>>::value) {
      if (pass.input_count <= kFewRanks && pass.call->output_count <= kFewRanks) {
        return launch_few<Element, 1>(pass, finish);
      }
    }
    launch<Element, Op, 0>(pass, Unweighted{}, finish);
  }
}

template <typename Element>
void run_scaled(const Pass& pass) {
  using A = typename Element::Accumulator;
  if constexpr (IsFloat<A>::value) {
    Weighted<A> weights{};
    for (int q = 0; q < pass.input_count; ++q) weights.factors[q] = static_cast<A>(pass.factors[q]);
    launch<Element, Sum, 0>(pass, weights, Keep<A>{});
  }
}

#include "comm/reduce/choice.inl"

bool is_float(int type) {
  return type >= static_cast<int>(DataType::kFloat16) && type <= static_cast<int>(DataType::kFloat64);
}

// Whether the reduction is defined: as comm::is_defined(), and factors are allowed for sums of floats only.
bool is_defined(const ReduceCall& call) {
  const int last = static_cast<int>(ReduceOp::kBxor);
  if (call.type < 0 || call.type > static_cast<int>(DataType::kBool) || call.op < 0 || call.op > last) return false;
  const auto op = static_cast<ReduceOp>(call.op);
  if (call.factors != nullptr && !(op == ReduceOp::kSum && is_float(call.type))) return false;
  return comm::is_defined(op, static_cast<DataType>(call.type));
}

bool are_addresses(const void* const* addresses, int count, std::size_t element_bytes) {
  if (addresses == nullptr || count < 1 || count > kReduceRanks) return false;
  for (int q = 0; q < count; ++q) {
    if (addresses[q] == nullptr || remainder_of(addresses[q]) % element_bytes != 0) return false;
  }
  return true;
}

int enqueue(const ReduceCall& call, cudaStream_t stream) {
  if (!is_defined(call) || call.divisor < 0) return cudaErrorInvalidValue;
  if (call.count == 0) return cudaSuccess;
  const std::size_t bytes = comm::size_of(static_cast<DataType>(call.type));
  if (!are_addresses(call.inputs, call.input_count, bytes)) return cudaErrorInvalidValue;
  if (!are_addresses(call.outputs, call.output_count, bytes)) return cudaErrorInvalidValue;
  cudaError_t result = cudaErrorInvalidValue;
  run_type({.call = &call,
            .stream = stream,
            .result = &result,
            .input_count = call.input_count,
            .count = call.count,
            .type = static_cast<DataType>(call.type),
            .op = static_cast<ReduceOp>(call.op),
            .factors = call.factors,
            .divisor = call.divisor});
  return forgotten(result);
}

}  // namespace
}  // namespace reigen::device

extern "C" int reigen_cuda_version() { return reigen::device::kPluginVersion; }

extern "C" int reigen_cuda_reduce(const reigen::device::ReduceCall* call, void* stream) {
  return call == nullptr ? cudaErrorInvalidValue : reigen::device::enqueue(*call, static_cast<cudaStream_t>(stream));
}
