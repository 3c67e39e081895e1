// Runs the schedules of all ranks together, for every algorithm. Checks values, equal bits on all ranks, and the costs
// in docs/algorithms.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <span>

#include "comm/schedule/cut.h"
#include "comm/schedule/table.h"
#include "comm/simulator.h"

namespace reigen::testing {
namespace {

using comm::DataType;
using comm::OperationKind;
using comm::ReduceOp;
using comm::schedule::Algorithm;
using comm::schedule::Blocks;
using comm::schedule::Problem;
using Counts = std::vector<std::size_t>;

constexpr int kSizes[] = {1, 2, 3, 4, 5, 7, 8};
constexpr std::size_t kSegments[] = {1, 2, 5};
constexpr OperationKind kKinds[] = {OperationKind::kAllReduce, OperationKind::kReduceScatter, OperationKind::kAllGather,
                                    OperationKind::kBroadcast, OperationKind::kReduce,        OperationKind::kGather,
                                    OperationKind::kScatter,   OperationKind::kAllToAll,      OperationKind::kBarrier};

std::size_t ceil_log2(int value) { return static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(value - 1))); }
std::size_t power_below(int value) { return std::bit_floor(static_cast<unsigned>(value)); }

// Element i of the input of rank q. It is a whole number, so every sum is exact.
float value_of(int rank, std::size_t i) { return static_cast<float>((rank + 1) * 3) + static_cast<float>(i % 11); }

float sum_at(int ranks, std::size_t i) {
  float sum = 0;
  for (int q = 0; q < ranks; ++q) sum += value_of(q, i);
  return sum;
}

// One run: an operation on blocks whose sizes are `counts`.
struct Case {
  OperationKind kind;
  const Algorithm* algorithm;
  int size;
  int root;
  Counts counts;
  std::size_t segments;
  bool in_place;

  std::size_t total() const { return Blocks(counts).total(); }
  std::size_t sent(int from, int to) const {  // all_to_all: sizes differ by sender and receiver
    return counts[static_cast<std::size_t>((from + 2 * to) % size)];
  }
  Problem problem(int rank) const {
    Problem p{.rank = rank, .size = size, .root = root, .counts = counts, .segments = segments};
    if (kind != OperationKind::kAllToAll) return p;
    p.counts.clear();
    for (int q = 0; q < size; ++q) {
      p.counts.push_back(sent(rank, q));
      p.received.push_back(sent(q, rank));
    }
    return p;
  }
  std::string text() const {
    return std::string(name_of(kind)) + ":" + algorithm->name + " ranks " + std::to_string(size) + " root " +
           std::to_string(root) + " elements " + std::to_string(total()) + " segments " + std::to_string(segments) +
           (in_place ? " in place" : "");
  }
};

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

float float_at(const std::vector<std::byte>& bytes, std::size_t i) {
  float value = 0;
  std::memcpy(&value, bytes.data() + i * sizeof(float), sizeof(float));
  return value;
}

std::size_t input_count(const Case& c, int rank) {
  const auto own = c.counts[static_cast<std::size_t>(rank)];
  switch (c.kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kReduceScatter:
    case OperationKind::kReduce: return c.total();
    case OperationKind::kAllGather:
    case OperationKind::kGather: return own;
    case OperationKind::kBroadcast:
    case OperationKind::kScatter: return rank == c.root ? c.total() : 0;
    case OperationKind::kAllToAll: return Blocks(c.problem(rank).counts).total();
    default: break;
  }
  return 0;
}

std::size_t output_count(const Case& c, int rank) {
  const auto own = c.counts[static_cast<std::size_t>(rank)];
  switch (c.kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kAllGather: return c.total();
    case OperationKind::kBroadcast: return rank == c.root ? 0 : c.total();
    case OperationKind::kReduceScatter:
    case OperationKind::kScatter: return own;
    case OperationKind::kReduce:
    case OperationKind::kGather: return rank == c.root ? c.total() : 0;
    case OperationKind::kAllToAll: return Blocks(c.problem(rank).received).total();
    default: break;
  }
  return 0;
}

// Appends `count` elements of the input of rank q, from element `first` on.
void append_values(std::vector<float>& to, int q, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) to.push_back(value_of(q, i));
}

// The output of a rank.
std::vector<float> expected(const Case& c, int rank) {
  const Blocks blocks(c.counts);
  const std::size_t count = output_count(c, rank);
  std::vector<float> values;
  values.reserve(count);
  switch (c.kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kReduce:
    case OperationKind::kReduceScatter: {
      const std::size_t first = c.kind == OperationKind::kReduceScatter ? blocks.begin(rank) : 0;
      for (std::size_t i = 0; i < count; ++i) values.push_back(sum_at(c.size, first + i));
      break;
    }
    case OperationKind::kBroadcast: append_values(values, c.root, 0, count); break;
    case OperationKind::kScatter: append_values(values, c.root, blocks.begin(rank), count); break;
    case OperationKind::kAllGather:
    case OperationKind::kGather:
      for (int q = 0; q < c.size && count > 0; ++q) append_values(values, q, 0, blocks.count(q));
      break;
    case OperationKind::kAllToAll:
      for (int q = 0; q < c.size; ++q)
        append_values(values, q, Blocks(c.problem(q).counts).begin(rank), c.sent(q, rank));
      break;
    default: break;
  }
  return values;
}

SimulatedRank rank_of(const Case& c, int rank) {
  SimulatedRank r{.schedule = c.algorithm->make(c.problem(rank)), .input = {}, .output = {}};
  const std::size_t own_at = Blocks(c.counts).begin(rank) * sizeof(float);
  std::vector<float> input(input_count(c, rank));
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = value_of(rank, i);
  r.input = bytes_of(input);
  r.output.assign(output_count(c, rank) * sizeof(float), std::byte{0x77});
  r.in_place = c.in_place && !r.input.empty() && !r.output.empty();
  if (!r.in_place) return r;
  if (r.output.size() > r.input.size()) {
    r.input_in_output = own_at;
    std::memcpy(r.output.data() + own_at, r.input.data(), r.input.size());
  } else {
    r.output_in_input = r.input.size() > r.output.size() ? own_at : 0;
    r.output.clear();
  }
  return r;
}

SimulatedRun check_values(const Case& c) {
  SCOPED_TRACE(c.text());
  std::vector<SimulatedRank> ranks;
  std::vector<std::size_t> at;
  for (int r = 0; r < c.size; ++r) {
    ranks.push_back(rank_of(c, r));
    at.push_back(ranks.back().in_place && ranks.back().output.empty() ? ranks.back().output_in_input : 0);
  }
  SimulatedRun run = simulate(std::move(ranks), DataType::kFloat32, ReduceOp::kSum);
  for (int r = 0; r < c.size; ++r) {
    const auto& output = run.outputs[static_cast<std::size_t>(r)];
    const std::size_t first = at[static_cast<std::size_t>(r)] / sizeof(float);
    const std::vector<float> values = expected(c, r);
    EXPECT_EQ(values.size(), output_count(c, r)) << "rank " << r;
    const std::vector<std::byte> bytes = bytes_of(values);
    const std::span<const std::byte> got = std::span(output).subspan(first * sizeof(float), bytes.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin())) << "rank " << r;
    for (std::size_t i = 0; i < values.size() && ::testing::Test::HasFailure(); ++i) {
      EXPECT_EQ(float_at(output, first + i), values[i]) << "rank " << r << " element " << i;
    }
    if (::testing::Test::HasFailure()) return run;
  }
  return run;
}

std::vector<Counts> counts_for(OperationKind kind, int size) {
  const auto p = static_cast<std::size_t>(size);
  std::vector<Counts> all;
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, p - 1, p + 1, std::size_t{1000}, std::size_t{1003}}) {
    all.push_back(kind == OperationKind::kAllReduce || kind == OperationKind::kBroadcast ||
                          kind == OperationKind::kReduce
                      ? comm::schedule::even_cut(count, p)
                      : Counts(p, count));
  }
  Counts uneven(p);
  for (std::size_t q = 0; q < p; ++q) uneven[q] = q % 3 == 1 ? 0 : 7 * q + 5;
  all.push_back(uneven);
  Counts one(p, 0);
  one.back() = 100;
  all.push_back(one);
  return all;
}

TEST(Schedule, EveryAlgorithmGivesTheRightValues) {
  for (const OperationKind kind : kKinds) {
    for (const Algorithm& algorithm : comm::schedule::algorithms(kind)) {
      for (const int size : kSizes) {
        for (const Counts& counts : counts_for(kind, size)) {
          for (const std::size_t segments : kSegments) {
            for (int root = 0; root < (comm::has_root(kind) ? size : 1); ++root) {
              for (const bool in_place : {false, true}) {
                if (in_place && (kind == OperationKind::kAllToAll || kind == OperationKind::kBroadcast)) continue;
                check_values({kind, &algorithm, size, root, counts, segments, in_place});
                if (::testing::Test::HasFailure()) return;
              }
            }
          }
        }
      }
    }
  }
}

// Values whose sum depends on the order of additions.
TEST(Schedule, SumsHaveEqualBitsOnAllRanksAndRankOrderWhereItIsPromised) {
  const auto value = [](int rank, std::size_t i) {
    return 1.0f / static_cast<float>(i % 1013 + 3) * (rank % 2 == 0 ? 1.0f : -0.7f) + static_cast<float>(rank);
  };
  constexpr std::size_t kCount = 1501;
  for (const int size : kSizes) {
    for (const Algorithm& algorithm : comm::schedule::algorithms(OperationKind::kAllReduce)) {
      std::vector<SimulatedRank> ranks;
      for (int r = 0; r < size; ++r) {
        std::vector<float> input(kCount);
        for (std::size_t i = 0; i < kCount; ++i) input[i] = value(r, i);
        const Problem p{.rank = r,
                        .size = size,
                        .counts = comm::schedule::even_cut(kCount, static_cast<std::size_t>(size)),
                        .segments = 3};
        ranks.push_back({.schedule = algorithm.make(p), .input = bytes_of(input), .output = bytes_of(input)});
      }
      const auto run = simulate(std::move(ranks), DataType::kFloat32, ReduceOp::kSum);
      for (const auto& output : run.outputs) EXPECT_EQ(output, run.outputs[0]) << algorithm.name << " " << size;
      if (algorithm.name != "direct" && algorithm.name != "flat") continue;
      for (std::size_t i = 0; i < kCount; ++i) {
        float sum = value(0, i);
        for (int q = 1; q < size; ++q) sum += value(q, i);
        ASSERT_EQ(float_at(run.outputs[0], i), sum) << algorithm.name << " ranks " << size << " element " << i;
      }
    }
  }
}

template <typename T>
void check_average(DataType type, int size, const Algorithm& algorithm) {
  constexpr std::size_t kCount = 100;
  std::vector<SimulatedRank> ranks;
  for (int r = 0; r < size; ++r) {
    std::vector<T> input(kCount);
    for (std::size_t i = 0; i < kCount; ++i) input[i] = static_cast<T>((static_cast<std::size_t>(r) + 1) * (i % 3 + 1));
    std::vector<std::byte> bytes(kCount * sizeof(T));
    std::memcpy(bytes.data(), input.data(), bytes.size());
    const Problem p{
        .rank = r, .size = size, .counts = comm::schedule::even_cut(kCount, static_cast<std::size_t>(size))};
    ranks.push_back({.schedule = algorithm.make(p), .input = bytes, .output = bytes});
  }
  const auto run = simulate(std::move(ranks), type, ReduceOp::kAvg);
  for (const auto& output : run.outputs) {
    for (std::size_t i = 0; i < kCount; ++i) {
      T got{};
      std::memcpy(&got, output.data() + i * sizeof(T), sizeof(T));
      const auto sum = static_cast<T>(static_cast<std::size_t>(size * (size + 1) / 2) * (i % 3 + 1));
      ASSERT_EQ(got, static_cast<T>(sum / static_cast<T>(size))) << algorithm.name << " ranks " << size;
    }
  }
}

TEST(Schedule, AveragesDivideOnce) {
  for (const int size : kSizes) {
    for (const Algorithm& algorithm : comm::schedule::algorithms(OperationKind::kAllReduce)) {
      check_average<float>(DataType::kFloat32, size, algorithm);
      check_average<double>(DataType::kFloat64, size, algorithm);
      check_average<std::int32_t>(DataType::kInt32, size, algorithm);
      check_average<std::int64_t>(DataType::kInt64, size, algorithm);
    }
  }
}

// Small whole numbers are exact in 16 bits, even if partial sums are rounded often.
TEST(Schedule, SixteenBitSumsOfSmallNumbersAreExact) {
  const auto bfloat16 = [](float v) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v) >> 16); };
  for (const int size : kSizes) {
    for (const Algorithm& algorithm : comm::schedule::algorithms(OperationKind::kAllReduce)) {
      std::vector<SimulatedRank> ranks;
      for (int r = 0; r < size; ++r) {
        std::vector<std::byte> bytes(200);
        for (std::size_t i = 0; i < 100; ++i) {
          const std::uint16_t v = bfloat16(static_cast<float>(r + 1));
          std::memcpy(bytes.data() + 2 * i, &v, 2);
        }
        const Problem p{
            .rank = r, .size = size, .counts = comm::schedule::even_cut(100, static_cast<std::size_t>(size))};
        ranks.push_back({.schedule = algorithm.make(p), .input = bytes, .output = bytes});
      }
      const auto run = simulate(std::move(ranks), DataType::kBfloat16, ReduceOp::kSum);
      for (const auto& output : run.outputs) {
        std::uint16_t got = 0;
        std::memcpy(&got, output.data() + 42, 2);
        ASSERT_EQ(got, bfloat16(static_cast<float>(size * (size + 1) / 2))) << algorithm.name << " ranks " << size;
      }
    }
  }
}

// The table of docs/algorithms.md. Every K and S here divides N, so no count is rounded.
struct Cost {
  const char* algorithm;
  std::function<std::size_t(int k, std::size_t n, std::size_t s)> depth;      // messages one after the other
  std::function<std::size_t(int k, std::size_t n, std::size_t s)> most_sent;  // elements that the busiest rank sends
};

void check_costs(OperationKind kind, const std::vector<Cost>& costs) {
  for (const Cost& cost : costs) {
    const Algorithm* algorithm = comm::schedule::find(kind, cost.algorithm);
    ASSERT_NE(algorithm, nullptr) << cost.algorithm;
    for (const int size : {2, 3, 4, 5, 7, 8}) {
      for (const std::size_t segments : {std::size_t{1}, std::size_t{4}}) {
        const std::size_t s = algorithm->cuts == Algorithm::Cuts::kNothing ? 1 : segments;
        const std::size_t n = 2 * 3 * 4 * 5 * 7 * 8;
        const Case c{
            kind, algorithm, size, size - 1, Counts(static_cast<std::size_t>(size), n / static_cast<std::size_t>(size)),
            s,    false};
        const auto run = check_values(c);
        std::size_t most = 0;
        for (const Count& count : run.ranks) most = std::max(most, count.sent);
        EXPECT_EQ(run.depth, cost.depth(size, n, s)) << c.text();
        EXPECT_EQ(most, cost.most_sent(size, n, s)) << c.text();
      }
    }
  }
}

std::size_t others(int k) { return static_cast<std::size_t>(k - 1); }
std::size_t all(int k) { return static_cast<std::size_t>(k); }

TEST(ScheduleCost, OfAllReduce) {
  const auto folds = [](int k) { return power_below(k) == all(k) ? std::size_t{0} : std::size_t{2}; };
  const auto log = [](int k) { return static_cast<std::size_t>(std::bit_width(power_below(k)) - 1); };
  check_costs(OperationKind::kAllReduce,
              {{"flat", [](int, auto, auto) { return 1; }, [](int k, auto n, auto) { return others(k) * n; }},
               {"direct", [](int, auto, auto s) { return 2 * s; },
                [](int k, auto n, auto) { return 2 * others(k) * n / all(k); }},
               {"ring", [](int k, auto, auto s) { return 2 * others(k) * s; },
                [](int k, auto n, auto) { return 2 * others(k) * n / all(k); }},
               {"halving_doubling", [&](int k, auto, auto) { return 2 * log(k) + folds(k); },
                [&](int k, auto n, auto) { return 2 * n * (power_below(k) - 1) / power_below(k) + folds(k) / 2 * n; }},
               {"recursive_doubling", [&](int k, auto, auto) { return log(k) + folds(k); },
                [&](int k, auto n, auto) { return log(k) * n + folds(k) / 2 * n; }}});
}

TEST(ScheduleCost, OfBroadcastAndReduce) {
  check_costs(
      OperationKind::kBroadcast,
      {{"flat", [](int, auto, auto) { return 1; }, [](int k, auto n, auto) { return others(k) * n; }},
       {"tree", [](int k, auto, auto) { return ceil_log2(k); }, [](int k, auto n, auto) { return ceil_log2(k) * n; }},
       {"ring", [](int k, auto, auto s) { return s + all(k) - 2; }, [](int, auto n, auto) { return n; }}});
  check_costs(OperationKind::kReduce,
              {{"flat", [](int, auto, auto) { return 1; }, [](int, auto n, auto) { return n; }},
               {"direct", [](int, auto, auto s) { return s + 1; }, [](int, auto n, auto) { return n; }},
               {"tree", [](int k, auto, auto) { return ceil_log2(k); }, [](int, auto n, auto) { return n; }}});
}

TEST(ScheduleCost, OfBlocks) {
  const auto share = [](int k, auto n, auto) { return others(k) * n / all(k); };
  check_costs(OperationKind::kReduceScatter, {{"direct", [](int, auto, auto s) { return s; }, share},
                                              {"ring", [](int k, auto, auto s) { return others(k) * s; }, share}});
  check_costs(OperationKind::kAllGather, {{"flat", [](int, auto, auto) { return 1; }, share},
                                          {"ring", [](int k, auto, auto s) { return others(k) * s; }, share}});
  check_costs(OperationKind::kScatter, {{"flat", [](int, auto, auto) { return 1; }, share}});
  check_costs(OperationKind::kGather,
              {{"flat", [](int, auto, auto) { return 1; }, [](int k, auto n, auto) { return n / all(k); }}});
  check_costs(OperationKind::kAllToAll, {{"pairwise", [](int k, auto, auto) { return others(k); }, share}});
}

TEST(ScheduleCost, OfBarrier) {
  for (const int size : kSizes) {
    std::vector<SimulatedRank> ranks;
    const Algorithm* algorithm = comm::schedule::find(OperationKind::kBarrier, "dissemination");
    for (int r = 0; r < size; ++r) {
      ranks.push_back(
          {.schedule = algorithm->make({.rank = r, .size = size, .counts = {}}), .input = {}, .output = {}});
    }
    EXPECT_EQ(simulate(std::move(ranks), DataType::kUint8, ReduceOp::kSum).depth, ceil_log2(size));
  }
}

TEST(Cut, PiecesCoverTheRange) {
  for (const std::size_t count : {0U, 1U, 7U, 100U}) {
    for (const std::size_t pieces : {1U, 2U, 3U, 8U}) {
      std::size_t at = 5;
      for (std::size_t k = 0; k < pieces; ++k) {
        const auto part = comm::schedule::piece({comm::schedule::Buffer::kInput, 5, count}, k, pieces);
        EXPECT_EQ(part.begin, at);
        EXPECT_LE(part.count, comm::schedule::piece_count(count, pieces));
        at += part.count;
      }
      EXPECT_EQ(at, 5 + count);
    }
  }
}

}  // namespace
}  // namespace reigen::testing
