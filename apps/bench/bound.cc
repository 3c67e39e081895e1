#include "bench/bound.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bench/memory.h"
#include "bench/statistics.h"
#include "comm/reduce/reduce.h"
#include "device/cuda.h"

namespace reigen::apps::bench {

namespace {

constexpr double kBatchSeconds = 50e-6;  // a thousand times the clock's resolution
constexpr double kTotalSeconds = 0.1;
constexpr std::size_t kSkew = 320;  // bytes between the streams, so that they do not use the same cache sets

double seconds_of(const std::function<void(std::size_t)>& function, std::size_t repeats) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < repeats; ++i) {
    function(i);
    asm volatile("" ::: "memory");  // keeps the compiler from dropping the next repetition as a repeat of the same work
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::size_t agree(const Communicator& world, double wanted, double least, double most) {
  auto value = static_cast<std::int64_t>(std::clamp(std::ceil(wanted), least, most));
  world.broadcast(&value, 1, comm::DataType::kInt64, 0);
  return static_cast<std::size_t>(value);
}

double measure_copy(const Communicator& world, std::size_t bytes, bool cold) {
  const std::size_t stride = (bytes + 63) / 64 * 64;
  const std::size_t slots = slots_of(2 * stride, cold);
  const auto memory = allocate_private(2 * stride * slots);
  const auto copy = [&](std::size_t iteration) {
    std::byte* const from = memory.get() + 2 * stride * (iteration % slots);
    std::memcpy(from + stride, from, bytes);
  };
  return time_together(world, copy);
}

// Measures at the speed of a long copy, because the time of a short copy is mostly its launch. All ranks copy at the
// same time, on one GPU or on several.
double measure_device_copy(const Communicator& world, std::size_t bytes) {
  constexpr std::size_t kLong = std::size_t{64} << 20;
  const int index = world.device().index;
  const auto from = device::allocate(index, kLong);
  const auto to = device::allocate(index, kLong);
  const device::OnDevice on(index);
  const device::OwnStream stream(index);
  const auto copy = [&](std::size_t) {
    device::check(
        device::cuda_runtime().memcpy_async(to.get(), from.get(), kLong, device::kCudaDeviceToDevice, stream.get()),
        "cudaMemcpyAsync");
    device::check(device::cuda_runtime().stream_synchronize(stream.get()), "cudaStreamSynchronize");
  };
  return time_together(world, copy) * static_cast<double>(bytes) / kLong;
}

// The buffers lie one after the other in memory: P inputs, then the outputs. If the call is in place, the outputs are
// the first inputs.
double measure_sum(const Communicator& world, const Problem& problem, bool cold, bool streaming) {
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  const std::size_t outputs = problem.operation == Operation::kAllReduce ? ranks : 1;
  const std::size_t count = (problem.whole() + ranks - 1) / ranks;
  const std::size_t stride = (count * comm::size_of(problem.type) + 63) / 64 * 64 + kSkew;
  const std::size_t set_bytes = stride * (ranks + (problem.in_place ? 0 : outputs));
  const std::size_t slots = slots_of(set_bytes, cold);
  const auto memory = allocate_private(set_bytes * slots);
  std::vector<const std::byte*> from(ranks);
  std::vector<std::byte*> to(outputs);
  const auto run = [&](std::size_t iteration) {
    std::byte* const begin = memory.get() + set_bytes * (iteration % slots);
    for (std::size_t q = 0; q < ranks; ++q) from[q] = begin + q * stride;
    for (std::size_t q = 0; q < outputs; ++q) to[q] = begin + (problem.in_place ? q : ranks + q) * stride;
    comm::reduce::run({.inputs = from.data(),
                       .outputs = to.data(),
                       .input_count = problem.ranks,
                       .output_count = static_cast<int>(outputs),
                       .count = count,
                       .type = problem.type,
                       .op = problem.op,
                       .streaming = streaming});
  };
  return time_together(world, run);
}

}  // namespace

double time_together(const Communicator& world, const std::function<void(std::size_t)>& function) {
  seconds_of(function, 1);
  world.barrier();
  const double once = std::max(1e-9, std::min(seconds_of(function, 2), seconds_of(function, 2)) / 2);
  const std::size_t repeats = agree(world, kBatchSeconds / once, 1, 50000);
  const double batch = seconds_of(
      [&](std::size_t) {
        world.barrier();
        seconds_of(function, repeats);
      },
      2);
  const std::size_t batches = agree(world, kTotalSeconds / (batch / 2), 5, 200);
  std::vector<double> times(batches);
  for (double& time : times) {
    world.barrier();
    time = seconds_of(function, repeats) / static_cast<double>(repeats);
  }
  return quantile(slowest_of_ranks(world, times), 0.5);
}

std::optional<double> measure_bound(const Communicator& world, const Problem& problem, bool cold) {
  const Traffic traffic = least_traffic(problem);
  const auto copied = static_cast<std::size_t>(std::llround((traffic.read + traffic.written) / 2));
  if (copied == 0) return std::nullopt;
  if (!world.device().is_cpu()) return measure_device_copy(world, copied);
  double best = measure_copy(world, copied, cold);
  if (!traits_of(problem.operation).reduces) return best;
  best = std::min(best, measure_sum(world, problem, cold, false));
  return problem.in_place ? best : std::min(best, measure_sum(world, problem, cold, true));
}

}  // namespace reigen::apps::bench
