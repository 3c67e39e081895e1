#include "bench/bound.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bench/memory.h"
#include "bench/statistics.h"

namespace reigen::apps::bench {

namespace {

constexpr double kBatchSeconds = 50e-6;  // a thousand times the clock's resolution
constexpr double kTotalSeconds = 0.1;
constexpr std::size_t kBlockBytes = 4096;  // of the accumulator: in the first cache with room for the streams
constexpr std::size_t kSkew = 320;         // keeps the streams from meeting in the same cache sets

double seconds_of(const std::function<void(std::size_t)>& function, std::size_t repeats) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < repeats; ++i) {
    function(i);
    asm volatile("" ::: "memory");  // the next repetition may not be dropped as the same work again
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::size_t agree(Communicator& world, double wanted, double least, double most) {
  auto value = static_cast<std::int64_t>(std::clamp(std::ceil(wanted), least, most));
  world.broadcast(&value, 1, comm::DataType::kInt64, 0);
  return static_cast<std::size_t>(value);
}

// P inputs, then the outputs: slices of `count` elements, `stride` bytes apart.
struct Streams {
  std::byte* begin = nullptr;
  std::size_t stride = 0;
  std::size_t inputs = 0;
  std::size_t outputs = 0;
  std::size_t count = 0;
};

template <typename T>
void add(const T* __restrict a, const T* __restrict b, T* __restrict sum, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] = static_cast<T>(a[i] + b[i]);
}

template <typename T>
void add_onto(const T* __restrict a, T* __restrict sum, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] = static_cast<T>(sum[i] + a[i]);
}

template <typename T>
void fused_pass(const Streams& streams) {
  constexpr std::size_t kBlock = kBlockBytes / sizeof(T);
  const auto at = [&](std::size_t stream, std::size_t i) {
    return reinterpret_cast<T*>(streams.begin + stream * streams.stride) + i;
  };
  for (std::size_t i = 0; i < streams.count; i += kBlock) {
    const std::size_t count = std::min(kBlock, streams.count - i);
    T* const sum = at(streams.inputs, i);
    if (streams.inputs == 1) {
      std::memcpy(sum, at(0, i), count * sizeof(T));
    } else {
      add(at(0, i), at(1, i), sum, count);
    }
    for (std::size_t q = 2; q < streams.inputs; ++q) add_onto(at(q, i), sum, count);
    for (std::size_t q = 1; q < streams.outputs; ++q) std::memcpy(at(streams.inputs + q, i), sum, count * sizeof(T));
  }
}

using Pass = void (*)(const Streams&);

// Null for 16-bit floats: their conversion is no plain loop.
Pass pass_of(comm::DataType type) {
  switch (type) {
    case comm::DataType::kInt8:
    case comm::DataType::kUint8:
    case comm::DataType::kBool: return fused_pass<std::uint8_t>;
    case comm::DataType::kInt16: return fused_pass<std::uint16_t>;
    case comm::DataType::kInt32: return fused_pass<std::uint32_t>;
    case comm::DataType::kInt64: return fused_pass<std::uint64_t>;
    case comm::DataType::kFloat32: return fused_pass<float>;
    case comm::DataType::kFloat64: return fused_pass<double>;
    default: return nullptr;
  }
}

double measure_copy(Communicator& world, std::size_t bytes, bool cold) {
  const std::size_t stride = (bytes + 63) / 64 * 64;
  const std::size_t slots = slots_of(2 * stride, cold);
  const auto memory = allocate_private(2 * stride * slots);
  const auto copy = [&](std::size_t iteration) {
    std::byte* const from = memory.get() + 2 * stride * (iteration % slots);
    std::memcpy(from + stride, from, bytes);
  };
  return time_together(world, copy);
}

double measure_sum(Communicator& world, const Problem& problem, Pass pass, bool cold) {
  const auto ranks = static_cast<std::size_t>(problem.ranks);
  Streams streams;
  streams.inputs = ranks;
  streams.outputs = problem.operation == Operation::kAllReduce ? ranks : 1;
  streams.count = (problem.whole() + ranks - 1) / ranks;
  streams.stride = (streams.count * comm::size_of(problem.type) + 63) / 64 * 64 + kSkew;
  const std::size_t set_bytes = streams.stride * (streams.inputs + streams.outputs);
  const std::size_t slots = slots_of(set_bytes, cold);
  const auto memory = allocate_private(set_bytes * slots);
  const auto run = [&](std::size_t iteration) {
    streams.begin = memory.get() + set_bytes * (iteration % slots);
    pass(streams);
  };
  return time_together(world, run);
}

}  // namespace

double time_together(Communicator& world, const std::function<void(std::size_t)>& function) {
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

std::optional<double> measure_bound(Communicator& world, const Problem& problem, bool cold) {
  const Traffic traffic = least_traffic(problem);
  const auto copied = static_cast<std::size_t>(std::llround((traffic.read + traffic.written) / 2));
  if (copied == 0) return std::nullopt;
  const double copy = measure_copy(world, copied, cold);
  const Pass pass = traits_of(problem.operation).reduces ? pass_of(problem.type) : nullptr;
  return pass == nullptr ? copy : std::min(copy, measure_sum(world, problem, pass, cold));
}

}  // namespace reigen::apps::bench
