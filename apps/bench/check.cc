#include "bench/check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "device/cuda.h"

namespace reigen::apps::bench {

namespace {

using comm::DataType;
using comm::ReduceOp;

std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  return value ^ (value >> 29);
}

std::int64_t below(std::uint64_t hash, int limit) {
  return static_cast<std::int64_t>(hash % static_cast<std::uint64_t>(limit));
}

// Element `index` of rank `rank`'s input. The elements are small whole numbers, so that every type can hold their
// reduction exactly.
std::int64_t input_value(const Problem& problem, int rank, std::size_t index) {
  const std::uint64_t of_index = mix(index);
  const std::uint64_t of_both = mix(of_index + static_cast<std::uint64_t>(rank));
  if (problem.type == DataType::kBool) return static_cast<std::int64_t>(of_both & 1);
  if (!traits_of(problem.operation).reduces) return below(of_both, 100);
  const auto ranks = static_cast<std::uint64_t>(problem.ranks);
  switch (problem.op) {
    case ReduceOp::kSum: return below(of_both, 1 + std::clamp(256 / problem.ranks, 1, 4));  // bfloat16: exact up to 256
    case ReduceOp::kProd: return (of_index + static_cast<std::uint64_t>(rank)) % ranks < 3 ? 2 : 1;  // 2 on three ranks
    case ReduceOp::kAvg: {  // the mean is 1 more than a value that depends on the index
      const bool last_of_odd = rank % 2 == 0 && rank + 1 == problem.ranks;
      return below(of_index, 4) + (last_of_odd ? 1 : 2 * (rank % 2));
    }
    default: return below(of_both, 100);
  }
}

std::int64_t combine(ReduceOp op, bool is_bool, std::int64_t a, std::int64_t b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg: return is_bool ? a | b : a + b;
    case ReduceOp::kProd: return a * b;
    case ReduceOp::kMin: return std::min(a, b);
    case ReduceOp::kMax: return std::max(a, b);
    case ReduceOp::kBand: return a & b;
    case ReduceOp::kBor: return a | b;
    case ReduceOp::kBxor: return a ^ b;
  }
  return a;
}

std::int64_t reduced_value(const Problem& problem, std::size_t index) {
  std::int64_t value = input_value(problem, 0, index);
  for (int rank = 1; rank < problem.ranks; ++rank) {
    value = combine(problem.op, problem.type == DataType::kBool, value, input_value(problem, rank, index));
  }
  return problem.op == ReduceOp::kAvg ? value / problem.ranks : value;
}

// Element `index` of this rank's output, by the formulas of communicator.h.
std::int64_t output_value(const Problem& problem, std::size_t index) {
  const std::size_t mine = static_cast<std::size_t>(problem.rank) * problem.count;
  const auto owner = static_cast<int>(index / problem.count);
  switch (comm::even_kind(problem.operation)) {
    case Operation::kSend: return input_value(problem, (problem.rank + problem.ranks - 1) % problem.ranks, index);
    case Operation::kAllReduce:
    case Operation::kReduce: return reduced_value(problem, index);
    case Operation::kReduceScatter: return reduced_value(problem, mine + index);
    case Operation::kAllGather:
    case Operation::kGather: return input_value(problem, owner, index % problem.count);
    case Operation::kScatter: return input_value(problem, problem.root, mine + index);
    case Operation::kAllToAll: return input_value(problem, owner, mine + index % problem.count);
    default: return input_value(problem, problem.root, index);
  }
}

// A whole number from 0 to 2047 as an IEEE half, which is exact.
std::uint16_t half_of(std::uint32_t value) {
  if (value == 0) return 0;
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(value)) - 1;
  const std::uint32_t fraction = (value << (10 - exponent)) & 0x3ff;
  return static_cast<std::uint16_t>(((exponent + 15) << 10) | fraction);
}

template <typename T>
void store(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof value);
}

void encode(DataType type, std::int64_t value, std::byte* at) {
  switch (type) {
    case DataType::kBool:
    case DataType::kInt8:
    case DataType::kUint8: return store(static_cast<std::uint8_t>(value), at);  // wraps around, as the reductions do
    case DataType::kInt16: return store(static_cast<std::uint16_t>(value), at);
    case DataType::kInt32: return store(static_cast<std::uint32_t>(value), at);
    case DataType::kInt64: return store(value, at);
    case DataType::kFloat16: return store(half_of(static_cast<std::uint32_t>(value)), at);
    case DataType::kBfloat16: {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
      return store(static_cast<std::uint16_t>(bits >> 16), at);
    }
    case DataType::kFloat32: return store(static_cast<float>(value), at);
    case DataType::kFloat64: return store(static_cast<double>(value), at);
  }
}

bool holds(DataType type, std::int64_t value, const std::byte* at) {
  std::array<std::byte, 8> wanted;
  encode(type, value, wanted.data());
  return std::memcmp(wanted.data(), at, comm::size_of(type)) == 0;
}

constexpr std::size_t kPiece = std::size_t{1} << 16;  // elements that are made or compared at once

// Copies between the host and the memory on which the group's calls are timed.
void copy(const Communicator& world, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (world.device().is_cpu()) {
    std::memcpy(to, from, bytes);
  } else {
    device::copy(to, from, bytes);
  }
}

// Writes `count` elements to `to`, in pieces of at most kPiece elements. make(begin, count, piece, size) puts the
// elements of one piece into host memory.
template <typename Make>
void write(const Communicator& world, DataType type, std::byte* to, std::size_t count, const Make& make) {
  const std::size_t size = comm::size_of(type);
  std::vector<std::byte> piece(std::min(count, kPiece) * size);
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const std::size_t some = std::min(kPiece, count - begin);
    make(begin, some, piece.data(), size);
    copy(world, to + begin * size, piece.data(), some * size);
  }
}

// The number of elements that differ from `value(index)`.
template <typename Value>
std::size_t count_others(const Communicator& world, DataType type, const std::byte* from, std::size_t count,
                         const Value& value) {
  const std::size_t size = comm::size_of(type);
  std::vector<std::byte> piece(std::min(count, kPiece) * size);
  std::size_t others = 0;
  for (std::size_t begin = 0; begin < count; begin += kPiece) {
    const std::size_t some = std::min(kPiece, count - begin);
    copy(world, piece.data(), from + begin * size, some * size);
    for (std::size_t i = 0; i < some; ++i) {
      if (!holds(type, value(begin + i), piece.data() + i * size)) ++others;
    }
  }
  return others;
}

bool is_receiver_of_broadcast(const Problem& problem) {
  return problem.operation == Operation::kBroadcast && problem.rank != problem.root;
}

}  // namespace

void fill(const Communicator& world, const Problem& problem, const Place& place) {
  const auto nonsense = [](std::size_t, std::size_t count, std::byte* piece, std::size_t size) {
    std::memset(piece, 0xa5, count * size);
  };
  if (place.output != nullptr) write(world, problem.type, place.output, problem.output_count(), nonsense);
  if (is_receiver_of_broadcast(problem)) return write(world, problem.type, place.input, problem.count, nonsense);
  write(world, problem.type, place.input, problem.input_count(),
        [&](std::size_t begin, std::size_t count, std::byte* piece, std::size_t size) {
          for (std::size_t i = 0; i < count; ++i) {
            encode(problem.type, input_value(problem, problem.rank, begin + i), piece + i * size);
          }
        });
}

std::size_t count_wrong(const Communicator& world, const Problem& problem, const Place& place) {
  const auto output = [&](std::size_t index) { return output_value(problem, index); };
  const auto input = [&](std::size_t index) { return input_value(problem, problem.rank, index); };
  std::size_t wrong = count_others(world, problem.type, place.output, problem.output_count(), output);
  if (is_receiver_of_broadcast(problem)) {
    wrong += count_others(world, problem.type, place.input, problem.count, output);
  } else if (!problem.in_place) {
    wrong += count_others(world, problem.type, place.input, problem.input_count(), input);
  }
  return wrong;
}

std::size_t count_wrong_barrier(const Communicator& world) {
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  std::array<std::int64_t, 2> mine{};
  mine[0] = now();
  world.barrier({.after = {world.device()}});
  mine[1] = now();
  std::vector<std::array<std::int64_t, 2>> all(static_cast<std::size_t>(world.size()));
  world.all_gather(mine.data(), all.data(), 2, DataType::kInt64);
  std::int64_t last_came = mine[0];
  for (const auto& times : all) last_came = std::max(last_came, times[0]);
  return mine[1] < last_came ? 1 : 0;
}

}  // namespace reigen::apps::bench
