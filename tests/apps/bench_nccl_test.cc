// reigen bench on devices, over the stand-in for NCCL and CUDA. The host cannot touch the devices' memory: an access is
// SIGSEGV.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/check.h"
#include "bench/measure.h"
#include "bench/options.h"
#include "device/cuda.h"
#include "fakes/nccl/stand_in.h"
#include "harness/ranks.h"
#include "harness/sanitizer.h"

namespace reigen::apps::bench {
namespace {

using reigen::testing::Rank;
using reigen::testing::run_ranks;

// Hides device memory from the host, before any is allocated.
const bool kHidden = [] {
  reigen::testing::stand_in::hide_memory();
  return true;
}();

// The backend of the device's memory. Over cuda_ipc all ranks share a GPU.
class BenchOnDevices : public ::testing::TestWithParam<const char*> {
 protected:
  static reigen::testing::RankOptions ranks(int count) {
    const bool shares = std::string(GetParam()) == "cuda_ipc";
    return {.ranks = count, .backend = GetParam(), .device = Device::cuda(shares ? 0 : -1)};
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, BenchOnDevices, ::testing::Values("nccl", "cuda_ipc"));

Problem problem_of(Communicator& world, const OperationTraits& traits, bool in_place, comm::DataType type) {
  return {.operation = traits.operation,
          .ranks = world.size(),
          .rank = world.rank(),
          .root = world.size() - 1,
          .in_place = in_place || traits.operation == Operation::kBroadcast,
          .type = type,
          .count = 20'003,
          .device = world.device()};
}

// Flips one bit in the last element of the operation's output.
void spoil(const Problem& problem, const Place& place) {
  const bool is_broadcast = problem.operation == Operation::kBroadcast;
  const std::size_t count = is_broadcast ? problem.count : problem.output_count();
  std::byte* const result = (is_broadcast ? place.input : place.output) + (count - 1) * comm::size_of(problem.type);
  std::byte one{};
  device::copy(&one, result, 1);
  one ^= std::byte{4};
  device::copy(result, &one, 1);
}

void expect_found(Communicator& world, const Problem& problem) {
  SCOPED_TRACE(std::string(traits_of(problem.operation).name) + " " + comm::name_of(problem.type));
  const auto memory = std::static_pointer_cast<std::byte>(world.allocate(place_bytes(problem), world.device()));
  const Place place = place_at(problem, memory.get());
  fill(world, problem, place);
  call(world, problem, place);
  EXPECT_EQ(count_wrong(world, problem, place), 0U);
  const bool is_broadcast = problem.operation == Operation::kBroadcast;
  if (is_broadcast ? problem.rank == problem.root : problem.output_count() == 0) return;
  spoil(problem, place);
  EXPECT_EQ(count_wrong(world, problem, place), 1U);
}

TEST_P(BenchOnDevices, EveryOperationIsFilledCalledAndCompared) {
  ASSERT_TRUE(kHidden);
  for (const int count : {1, 3}) {
    run_ranks(ranks(count), [](Rank& r) {
      for (const std::string& name : operation_names()) {
        const OperationTraits& traits = *find_operation(name);
        if (traits.operation == Operation::kBarrier || (traits.operation == Operation::kSend && r.size() == 1))
          continue;
        expect_found(r.world(), problem_of(r.world(), traits, false, comm::DataType::kFloat32));
        if (traits.in_place) expect_found(r.world(), problem_of(r.world(), traits, true, comm::DataType::kBfloat16));
      }
    });
  }
}

TEST_P(BenchOnDevices, ASizeIsTimedBesideACopyOfTheDevice) {
  run_ranks(ranks(2), [](Rank& r) {
    auto& world = r.world();
    BenchOptions options;
    options.iterations = reigen::testing::rounds(1000);
    options.warmup = 1;
    options.check = true;
    Problem problem = problem_of(world, traits_of(Operation::kAllReduce), false, comm::DataType::kFloat32);
    problem.count = 16;
    const auto memory = allocate_for(world, {problem}, options);
    const Row row = measure(world, problem, options, memory.get());
    EXPECT_EQ(row.wrong, 0U);
    EXPECT_GT(row.p50, 0);
    EXPECT_GT(row.bound.value_or(0), 0);
  });
}

}  // namespace
}  // namespace reigen::apps::bench
