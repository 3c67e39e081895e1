#include "trial/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace reigen::trial {

namespace {

using comm::DataType;
using comm::OperationKind;
using comm::ReduceOp;

std::int64_t below(std::uint64_t hash, std::uint64_t limit) { return static_cast<std::int64_t>(hash % limit); }

bool has_sign(DataType type) { return type != DataType::kUint8 && type != DataType::kBool; }

// Element i of the data from rank `from` to rank `to`.
std::int64_t value_of(const Problem& problem, int ranks, int from, int to, std::size_t i) {
  const std::uint64_t of_index = mix(problem.seed * 31 + static_cast<std::uint64_t>(to) * 7919 + i);
  const std::uint64_t of_both = mix(of_index + static_cast<std::uint64_t>(from) + 1);
  if (problem.type == DataType::kBool) return static_cast<std::int64_t>(of_both & 1);
  const std::int64_t sign = has_sign(problem.type) && (of_both >> 40) % 2 == 1 ? -1 : 1;
  if (!comm::reduces(problem.kind)) return sign * below(of_both, 101);
  switch (problem.op) {
    case ReduceOp::kSum: return sign * below(of_both, 5) * (problem.factors ? 2 : 1);  // bf16: exact to 256
    case ReduceOp::kProd:                                                              // at most three factors 2
      return sign * ((of_index + static_cast<std::uint64_t>(from)) % static_cast<std::uint64_t>(ranks) < 3 ? 2 : 1);
    case ReduceOp::kAvg: {  // the mean depends only on the index
      const std::int64_t mean =
          (has_sign(problem.type) && (of_index >> 40) % 2 == 1 ? -1 : 1) * (1 + below(of_index, 4));
      const bool last_of_odd = from % 2 == 0 && from + 1 == ranks;
      return mean + (last_of_odd ? 0 : from % 2 == 0 ? 1 : -1);
    }
    default: return sign * below(of_both, 101);
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

std::int64_t reduced_value(const Problem& problem, int ranks, int to, std::size_t i) {
  const auto given = [&](int from) {
    const std::int64_t value = value_of(problem, ranks, from, to, i);
    return problem.factors ? static_cast<std::int64_t>(static_cast<double>(value) * factor_of(problem, from)) : value;
  };
  std::int64_t value = given(0);
  for (int from = 1; from < ranks; ++from) {
    value = combine(problem.op, problem.type == DataType::kBool, value, given(from));
  }
  return problem.op == ReduceOp::kAvg ? value / ranks : value;
}

// A whole number below 2048 as fp16, which is exact.
std::uint16_t half_of(std::int64_t value) {
  if (value == 0) return 0;
  const auto magnitude = static_cast<std::uint32_t>(value < 0 ? -value : value);
  const auto exponent = static_cast<std::uint32_t>(std::bit_width(magnitude)) - 1;
  const std::uint32_t fraction = (magnitude << (10 - exponent)) & 0x3ff;
  return static_cast<std::uint16_t>((value < 0 ? 0x8000U : 0U) | ((exponent + 15) << 10) | fraction);
}

template <typename T>
void store(T value, std::byte* at) {
  std::memcpy(at, &value, sizeof value);
}

void encode(DataType type, std::int64_t value, std::byte* at) {
  switch (type) {
    case DataType::kBool:
    case DataType::kInt8:
    case DataType::kUint8: return store(static_cast<std::uint8_t>(value), at);
    case DataType::kInt16: return store(static_cast<std::uint16_t>(value), at);
    case DataType::kInt32: return store(static_cast<std::uint32_t>(value), at);
    case DataType::kInt64: return store(value, at);
    case DataType::kFloat16: return store(half_of(value), at);
    case DataType::kBfloat16: {
      const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
      return store(static_cast<std::uint16_t>(bits >> 16), at);
    }
    case DataType::kFloat32: return store(static_cast<float>(value), at);
    case DataType::kFloat64: return store(static_cast<double>(value), at);
  }
}

}  // namespace

std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

std::string describe(const Problem& p) {
  std::string text = fmt::format("{} {}", comm::name_of(p.kind), comm::name_of(p.type));
  if (comm::reduces(p.kind)) text += fmt::format(" {}", comm::name_of(p.op));
  text += fmt::format(", count {}", p.count);
  if (comm::has_root(p.kind)) text += fmt::format(", root {}", p.root);
  text += fmt::format(", {} memory, {}{}{}, seed {}", kMemoryNames[static_cast<int>(p.memory)],
                      kMannerNames[static_cast<int>(p.manner)], p.in_place ? ", in place" : "",
                      p.factors ? ", factors" : "", p.seed);
  return text;
}

double factor_of(const Problem& problem, int rank) {
  constexpr double kFactors[] = {0.5, 1, 2};
  return problem.factors ? kFactors[(static_cast<std::uint64_t>(rank) + problem.seed) % 3] : 1;
}

std::size_t block_count(const Problem& problem, int ranks, int from, int to) {
  if (!comm::is_uneven(problem.kind)) return problem.count;
  const bool pairwise = problem.kind == OperationKind::kAllToAllV;
  const bool by_receiver = problem.kind == OperationKind::kReduceScatterV || problem.kind == OperationKind::kScatterV;
  const auto p = static_cast<std::uint64_t>(ranks);
  const auto owner = static_cast<std::uint64_t>(by_receiver ? to : from);
  const std::uint64_t index = pairwise ? owner * p + static_cast<std::uint64_t>(to) : owner;
  if (index == problem.seed % (pairwise ? p * p : p)) return problem.count;
  switch (mix(problem.seed + 77 * index) % 4) {
    case 0: return 0;
    case 1: return 1;
    case 2: return problem.count / 2 + 1;
    default: return problem.count;
  }
}

std::vector<Block> input_blocks(const Problem& problem, int ranks, int rank) {
  const OperationKind even = comm::even_kind(problem.kind);
  const bool is_root = rank == problem.root;
  std::vector<Block> blocks;
  switch (even) {
    case OperationKind::kBarrier: break;
    case OperationKind::kBroadcast:
      if (is_root) blocks.push_back({rank, 0, problem.count});
      break;
    case OperationKind::kScatter:
      if (!is_root) break;
      [[fallthrough]];
    case OperationKind::kReduceScatter:
    case OperationKind::kAllToAll:
      for (int to = 0; to < ranks; ++to) blocks.push_back({rank, to, block_count(problem, ranks, rank, to)});
      break;
    default: blocks.push_back({rank, 0, block_count(problem, ranks, rank, 0)});
  }
  return blocks;
}

std::vector<Block> output_blocks(const Problem& problem, int ranks, int rank) {
  const OperationKind even = comm::even_kind(problem.kind);
  const bool is_root = rank == problem.root;
  const bool is_all_to_all = even == OperationKind::kAllToAll;
  switch (even) {
    case OperationKind::kBarrier: return {};
    case OperationKind::kAllReduce: return {{kAll, 0, problem.count}};
    case OperationKind::kReduce: return is_root ? std::vector<Block>{{kAll, 0, problem.count}} : std::vector<Block>{};
    case OperationKind::kReduceScatter: return {{kAll, rank, block_count(problem, ranks, 0, rank)}};
    case OperationKind::kBroadcast: return {{problem.root, 0, problem.count}};
    case OperationKind::kScatter: return {{problem.root, rank, block_count(problem, ranks, problem.root, rank)}};
    case OperationKind::kSend: return {{(rank + ranks - 1) % ranks, 0, problem.count}};
    default: break;
  }
  std::vector<Block> blocks;
  if (even == OperationKind::kGather && !is_root) return blocks;
  for (int from = 0; from < ranks; ++from) {
    const int to = is_all_to_all ? rank : 0;
    blocks.push_back({from, to, block_count(problem, ranks, from, to)});
  }
  return blocks;
}

std::size_t begin_of(const std::vector<Block>& blocks, std::size_t index) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < index; ++i) sum += blocks[i].count;
  return sum;
}

std::size_t total(const std::vector<Block>& blocks) { return begin_of(blocks, blocks.size()); }

std::vector<std::byte> pattern_of(const Problem& problem, int ranks, const Block& block) {
  const std::size_t size = comm::size_of(problem.type);
  const std::size_t count = std::min(block.count, kPeriod);
  std::vector<std::byte> pattern(count * size, std::byte{0xa5});
  for (std::size_t i = 0; i < count && block.from != kNonsense; ++i) {
    const std::int64_t value = block.from == kAll ? reduced_value(problem, ranks, block.to, i)
                                                  : value_of(problem, ranks, block.from, block.to, i);
    encode(problem.type, value, pattern.data() + i * size);
  }
  return pattern;
}

}  // namespace reigen::trial
