// For a machine with a GPU: are the kernels of libreigen_cuda.so right, and how fast are they?
//
// The program compares every reduction of every type with comm::reduce::run, bit for bit, except that a NaN may have
// different bits. Then it measures sums and, for comparison, a copy within the device. With --speed it only measures,
// once for each line of standard input; --small takes small sizes. The exit code is 1 if any result differs, and 69 if
// there is no GPU.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <random>
#include <vector>

#include "check_tools.h"
#include "comm/reduce/reduce.h"
#include "device/kernel_calls.h"
#include "reigen/comm/types.h"

namespace reigen::device {
namespace {

using comm::DataType;
using comm::ReduceOp;
using Reduce = decltype(&reigen_cuda_reduce);

constexpr std::size_t kLarge = (1u << 20) + 3;
constexpr std::size_t kGuard = 64;  // bytes before and after every buffer, which no kernel may change
constexpr int kGuardByte = 0xa5;
constexpr auto kSum = static_cast<int>(ReduceOp::kSum);

constexpr DataType kTypes[] = {DataType::kInt8,    DataType::kUint8,   DataType::kInt16,    DataType::kInt32,
                               DataType::kInt64,   DataType::kFloat16, DataType::kBfloat16, DataType::kFloat32,
                               DataType::kFloat64, DataType::kBool};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg,  ReduceOp::kProd, ReduceOp::kMin,
                             ReduceOp::kMax, ReduceOp::kBand, ReduceOp::kBor,  ReduceOp::kBxor};

struct Reduction {
  DataType type;
  ReduceOp op;
  int ranks;
  std::size_t count;
  const double* factors = nullptr;
  int divisor = 0;
};

// Where the buffers of rank q begin, in elements after a multiple of 16 bytes: inputs at `first` + q * `each`, outputs
// `later` elements after that.
struct Layout {
  std::size_t first;
  std::size_t each;
  bool in_place;
  bool one_output;
  std::size_t later = 0;
};
constexpr Layout kLayouts[] = {{0, 0, false, false}, {0, 0, true, false}, {1, 0, false, false},   {1, 0, true, false},
                               {1, 1, false, true},  {0, 1, true, false}, {0, 0, false, false, 1}};

// Random bits contain NaN, infinities and subnormal numbers. Every second float is near 1 or -1, so that sums are
// rounded.
void fill(std::byte* to, std::size_t bytes, DataType type) {
  std::mt19937_64 generator(bytes + static_cast<std::size_t>(type));
  for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
    const std::uint64_t bits = generator();
    std::memcpy(to + i, &bits, 8);
  }
  const bool is_float = type >= DataType::kFloat16 && type <= DataType::kFloat64;
  const std::size_t size = comm::size_of(type);
  for (std::size_t i = size; is_float && i + size <= bytes; i += 2 * size) {
    std::byte& upper = to[i + size - 1];
    upper = (upper & std::byte{0x80}) | (type == DataType::kFloat16 ? std::byte{0x3c} : std::byte{0x3f});
  }
}

template <typename T>
bool same(const std::byte* a, const std::byte* b, std::size_t count, T exponent) {
  std::size_t different = 0;
  for (std::size_t i = 0; i < count; ++i) {
    T x{};
    T y{};
    std::memcpy(&x, a + i * sizeof(T), sizeof(T));
    std::memcpy(&y, b + i * sizeof(T), sizeof(T));
    const T magnitude = static_cast<T>(~T{0}) >> 1;
    const bool both_nan = (x & magnitude) > exponent && (y & magnitude) > exponent;
    different += static_cast<std::size_t>(x != y && !both_nan);
  }
  return different == 0;
}

bool same_result(const std::byte* a, const std::byte* b, std::size_t count, DataType type) {
  switch (type) {
    case DataType::kFloat16: return same<std::uint16_t>(a, b, count, 0x7c00);
    case DataType::kBfloat16: return same<std::uint16_t>(a, b, count, 0x7f80);
    case DataType::kFloat32: return same<std::uint32_t>(a, b, count, 0x7f800000);
    case DataType::kFloat64: return same<std::uint64_t>(a, b, count, 0x7ff0000000000000);
    default: return std::memcmp(a, b, count * comm::size_of(type)) == 0;
  }
}

bool is_guard(const std::byte* at) {
  return std::all_of(at, at + kGuard, [](std::byte b) { return b == std::byte{kGuardByte}; });
}

class Comparison {
 public:
  // With `small` the largest buffers are left out.
  Comparison(Reduce reduce, bool small) : reduce_(reduce), small_(small) {}

  void compare_type(DataType type) {
    fill(source_.at(0), kRanks * kLarge * kWidest, type);
    const double factors[kReduceRanks] = {0.5, -3.0, 0.1, 1.0, 7.25, -0.3, 1e-3, 2.0};
    for (const ReduceOp op : kOps) {
      if (!comm::is_defined(op, type)) continue;
      const bool is_float_sum = op == ReduceOp::kSum && !comm::is_defined(ReduceOp::kBor, type);
      for (const int ranks : {1, 2, 3, 4, 7, 8, kReduceRanks}) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{7}, std::size_t{1000}, kLarge}) {
          if ((ranks > kRanks || small_) && count == kLarge) continue;
          compare({type, op, ranks, count});
          if (is_float_sum) compare({type, op, ranks, count, factors});
          if (op == ReduceOp::kAvg) compare({type, op, ranks, count, nullptr, 12});
        }
      }
    }
  }

  long cases() const { return cases_; }
  long failures() const { return failures_; }

 private:
  static constexpr int kRanks = 8;  // the most ranks for which the largest buffers are checked
  static constexpr std::size_t kWidest = 8;
  static constexpr std::size_t kSpace = kRanks * (kLarge * kWidest + 4096);

  void compare(const Reduction& reduction) {
    const std::size_t bytes = reduction.count * comm::size_of(reduction.type);
    std::vector<const std::byte*> inputs;
    for (int q = 0; q < reduction.ranks; ++q) inputs.push_back(source_.at(static_cast<std::size_t>(q) * bytes));
    expected_.resize(bytes);
    std::byte* const output = expected_.data();
    comm::reduce::run({.inputs = inputs.data(),
                       .outputs = &output,
                       .input_count = reduction.ranks,
                       .output_count = 1,
                       .count = reduction.count,
                       .type = reduction.type,
                       .op = reduction.op,
                       .factors = reduction.factors,
                       .divisor = reduction.divisor});
    for (const Layout& layout : kLayouts) compare(reduction, layout);
  }

  void compare(const Reduction& reduction, const Layout& layout) {
    const std::size_t size = comm::size_of(reduction.type);
    const std::size_t bytes = reduction.count * size;
    const std::size_t stride = kSpace / static_cast<std::size_t>(std::max(reduction.ranks, kRanks)) / 64 * 64;
    const std::size_t used = std::min(stride, bytes + 1024);
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (std::size_t q = 0; q < static_cast<std::size_t>(reduction.ranks); ++q) {
      const std::size_t begin = q * stride + kGuard + (layout.first + q * layout.each) % 16 * size;
      check(cudaMemset((layout.in_place ? in_ : out_).at(q * stride), kGuardByte, used), "cudaMemset");
      check(cudaMemcpyAsync(in_.at(begin), source_.at(q * bytes), bytes, cudaMemcpyHostToDevice, nullptr), "copy");
      inputs.push_back(in_.at(begin));
      if (!layout.one_output || q == 0)
        outputs.push_back((layout.in_place ? in_ : out_).at(begin + layout.later * size));
    }
    const ReduceCall call{.inputs = inputs.data(),
                          .outputs = outputs.data(),
                          .input_count = reduction.ranks,
                          .output_count = static_cast<int>(outputs.size()),
                          .count = reduction.count,
                          .type = static_cast<int>(reduction.type),
                          .op = static_cast<int>(reduction.op),
                          .factors = reduction.factors,
                          .divisor = reduction.divisor};
    check(reduce_(&call, nullptr), "reigen_cuda_reduce");
    // The same thread writes an element to all outputs, so of large outputs it is enough to compare the last one.
    const std::size_t first = reduction.count == kLarge ? outputs.size() - 1 : 0;
    for (std::size_t q = first; q < outputs.size(); ++q) {
      const auto* const from = static_cast<const std::byte*>(outputs[q]) - kGuard;
      check(cudaMemcpy(got_.at(0), from, bytes + 2 * kGuard, cudaMemcpyDeviceToHost), "the result's copy");
      const bool right = same_result(got_.at(kGuard), expected_.data(), reduction.count, reduction.type);
      const bool kept = is_guard(got_.at(0)) && is_guard(got_.at(kGuard + bytes));
      if (!right || !kept) report(reduction, layout, q, right ? "bytes beside the output were written" : "other bits");
    }
    ++cases_;
  }

  void report(const Reduction& reduction, const Layout& layout, std::size_t output, const char* what) {
    constexpr long kShown = 20;
    if (++failures_ > kShown) return;
    fmt::print(
        "{} {}: {} inputs, {} elements, output {}, begins {} + {}q elements after 16 bytes, outputs {} later{}{}{}: "
        "{}\n",
        comm::name_of(reduction.type), comm::name_of(reduction.op), reduction.ranks, reduction.count, output,
        layout.first, layout.each, layout.later, layout.in_place ? ", in place" : "",
        reduction.factors != nullptr ? ", with factors" : "", reduction.divisor != 0 ? ", with a divisor" : "", what);
  }

  Reduce reduce_;
  bool small_;
  HostMemory source_{kRanks * kLarge * kWidest};
  HostMemory got_{kLarge * kWidest + 2 * kGuard};
  Memory in_{kSpace};
  Memory out_{kSpace};
  std::vector<std::byte> expected_;
  long cases_ = 0;
  long failures_ = 0;
};

void measure(Reduce reduce, bool small) {
  const std::size_t most_bytes = (small ? 2 : 256) * kMebibyte;
  constexpr std::size_t kMostRanks = 4;
  const Memory in(kMostRanks * most_bytes);
  const Memory out(kMostRanks * most_bytes);
  check(cudaMemset(in.at(0), 0, kMostRanks * most_bytes), "cudaMemset");
  Stopwatch stopwatch;
  const float copy_time = stopwatch.median([&] {
    check(cudaMemcpyAsync(out.at(0), in.at(0), most_bytes, cudaMemcpyDeviceToDevice, nullptr), "cudaMemcpyAsync");
  });
  const double copy = gigabytes_per_second(2 * most_bytes, copy_time);
  fmt::print("\n| sum | inputs and outputs | MiB each | us | GB/s read and written | of a copy's {:.0f} GB/s |\n",
             copy);
  fmt::print("|---|---|---|---|---|---|\n");
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const std::size_t ranks : {std::size_t{2}, kMostRanks}) {
      for (const std::size_t mebibytes : {1u, 64u, 256u}) {
        const std::size_t bytes = mebibytes * kMebibyte;
        if (bytes > most_bytes) continue;
        const void* inputs[kMostRanks] = {};
        void* outputs[kMostRanks] = {};
        for (std::size_t q = 0; q < ranks; ++q) {
          inputs[q] = in.at(q * bytes);
          outputs[q] = out.at(q * bytes);
        }
        const ReduceCall call{.inputs = inputs,
                              .outputs = outputs,
                              .input_count = static_cast<int>(ranks),
                              .output_count = static_cast<int>(ranks),
                              .count = bytes / comm::size_of(type),
                              .type = static_cast<int>(type),
                              .op = kSum};
        const float time = stopwatch.median([&] { check(reduce(&call, nullptr), "reigen_cuda_reduce"); });
        const double speed = gigabytes_per_second(2 * ranks * bytes, time);
        fmt::print("| {} | {} | {} | {:.1f} | {:.0f} | {:.2f} |\n", comm::name_of(type), ranks, mebibytes, time * 1e3f,
                   speed, speed / copy);
      }
    }
  }
}

long compare_all(Reduce reduce, bool small) {
  Comparison comparison(reduce, small);
  for (const DataType type : kTypes) comparison.compare_type(type);
  fmt::print("{} cases, {} outputs differ from the host's\n", comparison.cases(), comparison.failures());
  return comparison.failures();
}

int run(const CheckWords& words) {
  if (!has_gpu("check_kernels")) return kNoDevice;
  const auto reduce = function_of_plugin<Reduce>("reigen_cuda_reduce");
  const long failures = words.speed ? 0 : compare_all(reduce, words.small);
  measure_in_rounds(words, [&] { measure(reduce, words.small); });
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace reigen::device

int main(int argc, char** argv) {
  try {
    return reigen::device::run(reigen::device::read_words(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "check_kernels: {}\n", error.what());
    return 1;
  }
}
