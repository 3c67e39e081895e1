#include "model_speeds.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "check_tools.h"
#include "device/kernel_calls.h"

namespace reigen::nn::kernels::checks {
namespace {

using device::check;
using device::Memory;
using device::ModelTypes;

template <typename Function>
Function* kernel(const char* name) {
  return device::function_of_plugin<Function*>(name);
}

// Measures calls. Each takes its arrays from one block of memory.
class Speeds {
 public:
  explicit Speeds(bool small)
      : rows(small ? 4 : 16 * 1024), bytes_((small ? std::size_t{64} : std::size_t{6144}) << 20), memory_(bytes_) {
    check(cudaMemset(memory_.at(0), 0, bytes_), "cudaMemset");
    const std::size_t copied = bytes_ / 6;
    const float time = stopwatch_.median([&] {
      check(cudaMemcpyAsync(memory_.at(copied), memory_.at(0), copied, cudaMemcpyDeviceToDevice, nullptr), "a copy");
    });
    copy_ = device::gigabytes_per_second(2 * copied, time);
    fmt::print("\n| kernel | us | GB/s read and written | of a copy's {:.0f} GB/s |\n|---|---|---|---|\n", copy_);
  }
  // Memory for an array of so many elements of `size` bytes. The arrays of one kernel lie one after the other.
  std::byte* next(std::int64_t elements, std::int64_t size) {
    std::byte* const begin = memory_.at(used_);
    used_ += (static_cast<std::size_t>(elements * size) + 255) / 256 * 256;
    if (used_ > bytes_) throw std::runtime_error("the arrays of a kernel do not fit");
    return begin;
  }
  // `bytes`: those that the call must read and write for each of the elements.
  template <typename Call>
  void time(const std::string& name, int (*function)(const Call*, void*), const Call& call, std::int64_t elements,
            std::int64_t bytes) {
    const float taken = stopwatch_.median([&] { check(function(&call, nullptr), name.c_str()); });
    const double speed = device::gigabytes_per_second(static_cast<std::size_t>(elements * bytes), taken);
    fmt::print("| {} | {:.1f} | {:.0f} | {:.2f} |\n", name, taken * 1e3f, speed, speed / copy_);
    used_ = 0;
  }

  const std::int64_t rows;  // of every array: 16 sequences of 1024 tokens

 private:
  std::size_t bytes_;
  Memory memory_;
  device::Stopwatch stopwatch_;
  double copy_ = 0;
  std::size_t used_ = 0;
};

constexpr int kMixed = static_cast<int>(ModelTypes::kFloat32Bfloat16);
constexpr int kBf16 = static_cast<int>(ModelTypes::kBfloat16);

void measure_norms(Speeds& s, const char* model, std::int64_t columns) {
  const std::int64_t n = s.rows * columns;
  const auto name = [&](const char* what) { return fmt::format("{}, {}", what, model); };
  s.time(name("norm with addition"), kernel<decltype(reigen_cuda_norm)>("reigen_cuda_norm"),
         device::NormCall{s.next(n, 4), s.next(n, 2), s.next(n, 4), s.next(columns, 4), s.next(columns, 4),
                          s.next(n, 2), s.next(s.rows, 4), s.next(s.rows, 4), s.rows, columns, 1e-5, kMixed},
         n, 12);
  s.time(name("norm backward"), kernel<decltype(reigen_cuda_norm_backward)>("reigen_cuda_norm_backward"),
         device::NormBackwardCall{s.next(n, 2), s.next(n, 4), s.next(n, 4), s.next(columns, 4), s.next(s.rows, 4),
                                  s.next(s.rows, 4), s.next(n, 4), s.next(n, 2), s.rows, columns, kMixed},
         n, 16);
  s.time(name("norm sums"), kernel<decltype(reigen_cuda_norm_sums)>("reigen_cuda_norm_sums"),
         device::NormSumsCall{s.next(n, 2), s.next(n, 4), s.next(s.rows, 4), s.next(s.rows, 4),
                              s.next(2 * device::sums_of(s.rows) * columns, 4), s.next(columns, 4), s.next(columns, 4),
                              s.rows, columns, kMixed},
         n, 6);
}

// A norm after a bottleneck's last convolution, with addition and ReLU.
void measure_batch_norms(Speeds& s, const char* layer, std::int64_t rows, std::int64_t columns) {
  const std::int64_t n = rows * columns;
  const auto name = [&](const char* what) { return fmt::format("{}, ResNet-50 {}", what, layer); };
  const auto parts = [&] { return s.next(2 * device::batch_sums_of(rows) * columns, 4); };
  const auto channel = [&] { return s.next(columns, 4); };
  s.time(name("batch statistics"), kernel<decltype(reigen_cuda_batch_statistics)>("reigen_cuda_batch_statistics"),
         device::BatchStatisticsCall{s.next(n, 2), parts(), channel(), channel(), channel(), channel(), rows, columns,
                                     0.1, 1e-5, kMixed},
         n, 2);
  s.time(name("batch norm"), kernel<decltype(reigen_cuda_batch_norm)>("reigen_cuda_batch_norm"),
         device::BatchNormCall{s.next(n, 2), s.next(n, 2), channel(), channel(), channel(), channel(), s.next(n, 2),
                               rows, columns, true, kMixed},
         n, 6);
  s.time(name("batch norm sums"), kernel<decltype(reigen_cuda_batch_norm_sums)>("reigen_cuda_batch_norm_sums"),
         device::BatchNormSumsCall{s.next(n, 2), s.next(n, 2), s.next(n, 2), channel(), channel(), channel(), channel(),
                                   s.next(n, 2), parts(), channel(), channel(), rows, columns, true, kMixed},
         n, 8);
  s.time(name("batch norm backward"),
         kernel<decltype(reigen_cuda_batch_norm_backward)>("reigen_cuda_batch_norm_backward"),
         device::BatchNormBackwardCall{s.next(n, 2), s.next(n, 2), channel(), channel(), channel(), channel(),
                                       channel(), channel(), s.next(n, 2), rows, columns, false, kMixed},
         n, 6);
}

void measure_loss(Speeds& s, const char* model, std::int64_t columns) {
  const std::int64_t n = s.rows * columns;
  std::byte* const logits = s.next(n, 2);
  s.time(
      fmt::format("cross entropy, {}", model), kernel<decltype(reigen_cuda_cross_entropy)>("reigen_cuda_cross_entropy"),
      device::CrossEntropyCall{logits, logits, reinterpret_cast<const long long*>(s.next(s.rows, 8)), s.next(s.rows, 4),
                               reinterpret_cast<double*>(s.next(1, 8)), s.next(1, 4), s.rows, columns, -100, kBf16},
      n, 4);
}

void measure_others(Speeds& s) {
  constexpr std::int64_t kHidden = 4 * 768;
  const std::int64_t gpt = s.rows * kHidden;
  s.time("gelu, GPT-2", kernel<decltype(reigen_cuda_gelu)>("reigen_cuda_gelu"),
         device::GeluCall{s.next(gpt, 2), s.next(kHidden, 4), s.next(gpt, 2), s.rows, kHidden, kMixed}, gpt, 4);
  s.time("gelu backward, GPT-2", kernel<decltype(reigen_cuda_gelu_backward)>("reigen_cuda_gelu_backward"),
         device::GeluBackwardCall{s.next(gpt, 2), s.next(gpt, 2), s.next(kHidden, 4), s.next(gpt, 2),
                                  s.next(device::sums_of(s.rows) * kHidden, 4), s.next(kHidden, 4), s.rows, kHidden,
                                  kMixed},
         gpt, 6);
  constexpr std::int64_t kWide = 14336;
  const std::int64_t llama = s.rows * kWide;
  s.time("swiglu, Llama", kernel<decltype(reigen_cuda_swiglu)>("reigen_cuda_swiglu"),
         device::SwigluCall{s.next(llama, 2), s.next(llama, 2), s.next(llama, 2), kWide, kWide, s.rows, kWide, kBf16},
         llama, 6);
  s.time("swiglu backward, Llama", kernel<decltype(reigen_cuda_swiglu_backward)>("reigen_cuda_swiglu_backward"),
         device::SwigluBackwardCall{s.next(llama, 2), s.next(llama, 2), s.next(llama, 2), s.next(llama, 2),
                                    s.next(llama, 2), kWide, kWide, kWide, kWide, s.rows, kWide, kBf16},
         llama, 10);
  constexpr std::int64_t kHeads = 32;
  constexpr std::int64_t kHalf = 64;
  const std::int64_t positions = std::min<std::int64_t>(s.rows, 1024);
  const std::int64_t query = s.rows * kHeads * 2 * kHalf;
  const device::RotaryStrides strides{positions * kHeads * 2 * kHalf, kHeads * 2 * kHalf, 2 * kHalf};
  s.time(
      "rotary, Llama", kernel<decltype(reigen_cuda_rotary)>("reigen_cuda_rotary"),
      device::RotaryCall{s.next(query, 2), s.next(query, 2), s.next(positions * kHalf, 4), s.next(positions * kHalf, 4),
                         strides, strides, s.rows, positions, kHeads, kHalf, false, kBf16},
      query, 4);
}

}  // namespace

void measure(bool small) {
  Speeds speeds(small);
  measure_norms(speeds, "GPT-2", 768);
  measure_norms(speeds, "Llama", 4096);
  const std::int64_t pictures = small ? 1 : 256;
  measure_batch_norms(speeds, "112x112x64", pictures * 112 * 112, 64);
  measure_batch_norms(speeds, "56x56x256", pictures * 56 * 56, 256);
  measure_batch_norms(speeds, "7x7x2048", pictures * 7 * 7, 2048);
  measure_loss(speeds, "GPT-2", 50304);
  measure_loss(speeds, "Llama", 128256);
  measure_others(speeds);
}

}  // namespace reigen::nn::kernels::checks
