// The comparison of `reigen bench --check` finds no error in right results, and finds a single wrong element.
#include "bench/check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reigen/runtime/init.h"

namespace reigen::apps::bench {
namespace {

constexpr std::size_t kCount = 37;

// The check must find no wrong element in the output of the operation, and one after a bit of the last element is
// flipped.
void expect_found(Communicator& world, Problem problem) {
  problem.ranks = world.size();
  problem.rank = world.rank();
  problem.count = kCount;
  std::vector<std::byte> memory(place_bytes(problem));
  const Place place = place_at(problem, memory.data());
  SCOPED_TRACE(std::string(traits_of(problem.operation).name) + " " + comm::name_of(problem.type) + " " +
               comm::name_of(problem.op));
  fill(world, problem, place);
  call(world, problem, place);
  EXPECT_EQ(count_wrong(world, problem, place), 0U);
  const bool is_broadcast = problem.operation == Operation::kBroadcast;
  std::byte* const result = is_broadcast ? place.input : place.output;
  const std::size_t count = is_broadcast ? problem.count : problem.output_count();
  if (count == 0 || (is_broadcast && problem.rank == problem.root)) return;
  result[(count - 1) * comm::size_of(problem.type)] ^= std::byte{4};
  EXPECT_EQ(count_wrong(world, problem, place), 1U);
}

class BenchCheck : public testing::TestWithParam<int> {};

TEST_P(BenchCheck, FindsOneWrongElementOfEveryOperation) {
  run_threads(GetParam(), [](Communicator& world) {
    for (const std::string& name : operation_names()) {
      const Operation operation = find_operation(name)->operation;
      if (operation == Operation::kBarrier || (operation == Operation::kSend && world.size() == 1)) continue;
      const bool always = operation == Operation::kBroadcast;
      expect_found(world, {.operation = operation, .root = world.size() - 1, .in_place = always});
      if (find_operation(name)->in_place) expect_found(world, {.operation = operation, .in_place = true});
    }
  });
}

TEST_P(BenchCheck, FindsOneWrongElementOfEveryTypeAndReduction) {
  run_threads(GetParam(), [](Communicator& world) {
    for (int type = 0; type <= static_cast<int>(comm::DataType::kBool); ++type) {
      for (int op = 0; op <= static_cast<int>(comm::ReduceOp::kBxor); ++op) {
        const Problem problem{.type = static_cast<comm::DataType>(type), .op = static_cast<comm::ReduceOp>(op)};
        if (comm::is_defined(problem.op, problem.type)) expect_found(world, problem);
      }
    }
  });
}

TEST_P(BenchCheck, FindsWhatAnOperationDidToItsInput) {
  run_threads(GetParam(), [](Communicator& world) {
    const Problem problem{.ranks = world.size(), .rank = world.rank(), .count = kCount};
    std::vector<std::byte> memory(place_bytes(problem));
    const Place place = place_at(problem, memory.data());
    fill(world, problem, place);
    call(world, problem, place);
    place.input[0] ^= std::byte{4};
    EXPECT_EQ(count_wrong(world, problem, place), 1U);
    EXPECT_EQ(count_wrong_barrier(world), 0U);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, BenchCheck, testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace reigen::apps::bench
