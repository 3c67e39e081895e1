#include "trial/bits.h"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "comm/reduce/reduce.h"
#include "trial/trial.h"

namespace reigen::trial {

namespace {

using comm::DataType;
using comm::OperationKind;
using comm::ReduceOp;

std::vector<std::byte> random_input(const BitsProblem& problem, int rank, std::size_t bytes) {
  std::vector<std::byte> data(bytes + 8);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = mix(problem.seed * 131 + static_cast<std::uint64_t>(rank) * 0x10000000 + i);
    std::memcpy(data.data() + i, &word, 8);
  }
  data.resize(bytes);
  return data;
}

struct Exponent {
  std::uint64_t ones;  // the bits of the exponent of infinity and NaN
  std::uint64_t fraction;
};

// All zero if the type has no NaN.
Exponent exponent_of(DataType type) {
  switch (type) {
    case DataType::kFloat16: return {0x7c00, 0x03ff};
    case DataType::kBfloat16: return {0x7f80, 0x007f};
    case DataType::kFloat32: return {0x7f800000, 0x007fffff};
    case DataType::kFloat64: return {0x7ff0000000000000, 0x000fffffffffffff};
    default: return {0, 0};
  }
}

bool is_nan(std::uint64_t bits, DataType type) {
  const Exponent e = exponent_of(type);
  return e.ones != 0 && (bits & e.ones) == e.ones && (bits & e.fraction) != 0;
}

std::uint64_t element_at(const std::byte* data, std::size_t i, DataType type) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, data + i * comm::size_of(type), comm::size_of(type));
  return bits;
}

void set_element(std::byte* data, std::size_t i, DataType type, std::uint64_t bits) {
  std::memcpy(data + i * comm::size_of(type), &bits, comm::size_of(type));
}

// Compares bits, but all NaN count as equal, because the bits of a NaN are not specified.
std::optional<std::string> compare(const std::byte* got, const std::byte* expected, std::size_t count, DataType type,
                                   const std::string& what) {
  if (count == 0 || std::memcmp(got, expected, count * comm::size_of(type)) == 0) return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t a = element_at(got, i, type);
    const std::uint64_t b = element_at(expected, i, type);
    if (a == b || (is_nan(a, type) && is_nan(b, type))) continue;
    return fmt::format("{}: element {}: got {:#x}, expected {:#x}", what, i, a, b);
  }
  return std::nullopt;
}

std::vector<std::byte> reduced(const char* instruction_set, const std::vector<std::vector<std::byte>>& inputs,
                               std::size_t begin, std::size_t count, DataType type, ReduceOp op) {
  const auto kernel = comm::reduce::kernel_for_test(instruction_set);
  if (kernel == nullptr) return {};
  std::vector<const std::byte*> in;
  for (const auto& input : inputs) in.push_back(input.data() + begin * comm::size_of(type));
  std::vector<std::byte> output(count * comm::size_of(type));
  std::byte* out = output.data();
  kernel({.inputs = in.data(),
          .outputs = &out,
          .input_count = static_cast<int>(inputs.size()),
          .output_count = 1,
          .count = count,
          .type = type,
          .op = op});
  return output;
}

// The output of one call on fresh memory. With `in_place` the output is in the memory of the input.
std::vector<std::byte> call(Communicator& world, OperationKind kind, DataType type, ReduceOp op, std::size_t count,
                            const std::vector<std::byte>& input, bool foreign, bool in_place) {
  Supply supply(world, false);
  const std::size_t bytes = count * comm::size_of(type);
  const auto in = supply.take(input.size(), foreign, 0);
  const auto out = supply.take(bytes, foreign, 1);
  if (!input.empty()) std::memcpy(in.get(), input.data(), input.size());
  auto* const base = static_cast<std::byte*>(in.get());
  const bool scatters = kind == OperationKind::kReduceScatter;
  std::byte* const own = scatters ? base + bytes * static_cast<std::size_t>(world.rank()) : base;
  std::byte* const result = in_place ? own : static_cast<std::byte*>(out.get());
  if (scatters) {
    world.reduce_scatter(base, result, count, type, op);
  } else if (kind == OperationKind::kReduce) {
    world.reduce(base, world.rank() == 0 ? result : nullptr, count, type, op, 0);
    world.broadcast(result, count, type, 0);
  } else {
    world.all_reduce(base, result, count, type, op);
  }
  return {result, result + bytes};
}

// Whether all ranks have the same data. All NaN count as one number.
bool all_ranks_have(Communicator& world, const std::vector<std::byte>& data, DataType type) {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < data.size() / comm::size_of(type); ++i) {
    const std::uint64_t bits = element_at(data.data(), i, type);
    hash = mix(hash ^ (is_nan(bits, type) ? exponent_of(type).ones + 1 : bits));
  }
  std::uint64_t ends[2] = {hash, ~hash};
  world.all_reduce(ends, ends, 2, DataType::kInt64, ReduceOp::kBand);
  return ends[0] == hash && ends[1] == ~hash;
}

}  // namespace

std::optional<std::string> find_wrong_bits(Communicator& world, const BitsProblem& p) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto mine = static_cast<std::size_t>(world.rank());
  const bool scatters = p.kind == OperationKind::kReduceScatter;
  const std::size_t all = scatters ? p.count * ranks : p.count;
  std::vector<std::vector<std::byte>> inputs;
  for (int q = 0; q < world.size(); ++q) inputs.push_back(random_input(p, q, all * comm::size_of(p.type)));
  const std::size_t begin = scatters ? mine * p.count : 0;
  const auto what = [&](const std::string& how) {
    return fmt::format("rank {} of {}: {} {} {}, count {}, random bits, seed {}, {}", world.rank(), world.size(),
                       comm::name_of(p.kind), comm::name_of(p.type), comm::name_of(p.op), p.count, p.seed, how);
  };
  auto expected = reduced("portable", inputs, begin, p.count, p.type, p.op);
  for (const char* set : {"avx2", "avx512", "neon"}) {
    const auto other = reduced(set, inputs, begin, p.count, p.type, p.op);
    if (other.empty()) continue;
    if (auto wrong = compare(other.data(), expected.data(), p.count, p.type, what(set))) return wrong;
  }
  for (int run = 0; run < p.runs; ++run) {
    const int memory = run % 3;  // index of kMemoryNames, like Memory
    const bool foreign = memory == 1 || (memory == 2 && (world.rank() + run) % 2 == 1);
    const bool in_place = run / 3 % 2 == 1;
    const auto got = call(world, p.kind, p.type, p.op, p.count, inputs[mine], foreign, in_place);
    const auto how = fmt::format("run {}, {} memory{}", run, kMemoryNames[memory], in_place ? ", in place" : "");
    if (!p.in_rank_order && run == 0) {
      expected = got;
      if (!scatters && !all_ranks_have(world, got, p.type)) return what("ranks have different bits");
    }
    if (auto wrong = compare(got.data(), expected.data(), p.count, p.type, what(how))) return wrong;
  }
  return std::nullopt;
}

std::optional<std::string> find_wrong_nan(Communicator& world, OperationKind kind, DataType type, ReduceOp op,
                                          std::size_t count, bool foreign) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const bool scatters = kind == OperationKind::kReduceScatter;
  const std::uint64_t nan = exponent_of(type).ones | (exponent_of(type).fraction / 2 + 1);
  for (int culprit = 0; culprit < world.size(); ++culprit) {
    // All other inputs are zeros, so a sum, product or extreme is 0 wherever no NaN is.
    std::vector<std::byte> input((scatters ? count * ranks : count) * comm::size_of(type));
    const std::size_t at = count / 2;
    for (std::size_t block = 0; block < (scatters ? ranks : 1); ++block) {
      if (world.rank() == culprit) set_element(input.data(), block * count + at, type, nan);
    }
    const auto got = call(world, kind, type, op, count, input, foreign, false);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t bits = element_at(got.data(), i, type);
      if (i == at ? is_nan(bits, type) : bits == 0) continue;
      return fmt::format("rank {} of {}: {} {} {}, count {}, NaN at {} of rank {}: element {}: got {:#x}, expected {}",
                         world.rank(), world.size(), comm::name_of(kind), comm::name_of(type), comm::name_of(op), count,
                         at, culprit, i, bits, i == at ? "NaN" : "0x0");
    }
  }
  return std::nullopt;
}

std::optional<std::string> find_narrow_sum(Communicator& world, DataType type, std::size_t count, bool foreign) {
  const bool half = type == DataType::kFloat16;
  // 2048 in fp16 and 256 in bf16. The next larger number is 2 more.
  const std::uint64_t large = half ? 0x6800 : 0x4380;
  const std::uint64_t one = half ? 0x3c00 : 0x3f80;
  const auto others = static_cast<std::uint64_t>(world.size() - 1);
  const std::uint64_t steps = others / 2 + (others % 2 == 1 && others / 2 % 2 == 1 ? 1 : 0);  // ties to even
  std::vector<std::byte> input(count * 2);
  for (std::size_t i = 0; i < count; ++i) set_element(input.data(), i, type, world.rank() == 0 ? large : one);
  const auto got = call(world, OperationKind::kAllReduce, type, ReduceOp::kSum, count, input, foreign, false);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = element_at(got.data(), i, type);
    if (bits == large + steps) continue;
    return fmt::format(
        "rank {} of {}: all_reduce {} sum, count {}: not added in fp32: element {}: got {:#x}, "
        "expected {:#x}",
        world.rank(), world.size(), comm::name_of(type), count, i, bits, large + steps);
  }
  return std::nullopt;
}

}  // namespace reigen::trial
