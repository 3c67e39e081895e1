#include "reigen/train/gemm_peak.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tensor/calls.h"
#include "train/run/step_times.h"

namespace reigen::train {

namespace {

// On a CPU a product of this size is nearly as fast as a larger one, and takes some milliseconds. More threads need
// more rows.
std::int64_t size_for(const at::Device& device) {
  if (!device.is_cpu()) return 8192;
  const auto rows = static_cast<std::int64_t>(512 * std::sqrt(at::get_num_threads()));
  return (rows + 63) / 64 * 64;  // whole tiles of the processor
}

}  // namespace

double measure_gemm_peak(const Communicator& world, const at::Device& device, at::ScalarType type) {
  constexpr int kRounds = 5;  // the first warms up; of the others the fastest counts
  const at::NoGradGuard no_grad;
  const std::int64_t size = size_for(device);
  at::Tensor a, b, product;
  std::int32_t has_memory = 1;
  try {
    a = at::linspace(-1, 1, size * size, at::TensorOptions().device(device)).view({size, size}).to(type);
    b = a.clone();
    product = at::empty_like(a);
  } catch (const c10::Error&) {  // the memory of a GPU may be full
    has_memory = 0;
  }
  world.all_reduce(&has_memory, &has_memory, 1, DataType::kInt32, ReduceOp::kMin, {.tag = "speed of matrix products"});
  if (has_memory == 0) return 0;
  const double operations = 2.0 * static_cast<double>(size * size * size);
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    world.barrier({.tag = "speed of matrix products"});
    Stopwatch time;
    at::mm_out(product, a, b);
    if (!device.is_cpu()) tensor::finish_stream_of(product);
    if (round > 0) best = std::max(best, operations / time.lap());
  }
  world.all_reduce(&best, &best, 1, DataType::kFloat64, ReduceOp::kSum, {.tag = "speed of matrix products"});
  return best;
}

}  // namespace reigen::train
