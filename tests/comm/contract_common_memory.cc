// The part of the contract on memory that all ranks of a group have in common, for backends of one machine.
#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "comm/contract.h"
#include "harness/sanitizer.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

// The value that rank q writes as element i in a round.
float value(int q, int round, std::size_t i) {
  return static_cast<float>(q * 5 + round * 3 + 1) + static_cast<float>(i % 13);
}

void fill(float* data, std::size_t count, int q, int round) {
  for (std::size_t i = 0; i < count; ++i) data[i] = value(q, round, i);
}

void expect_values(const float* data, std::size_t count, int q, int round, const char* what) {
  ASSERT_TRUE(elements_are(data, count, [&](std::size_t i) { return value(q, round, i); })) << what;
}

}  // namespace

TEST_P(CommonMemoryContract, WhatOneWritesToSharedMemoryAllSee) {
  run_ranks(options(), [](Rank& r) {
    const auto p = static_cast<std::size_t>(r.size());
    constexpr std::size_t kCount = 50000;
    for (int round = 0; round < 3; ++round) {
      const auto memory = r.world().allocate_shared(p * kCount * sizeof(float));
      auto* const data = static_cast<float*>(memory.get());
      for (std::size_t i = 0; i < p * kCount; i += 997) ASSERT_EQ(data[i], 0.0F);
      r.world().barrier();
      float* const own = data + static_cast<std::size_t>(r.rank()) * kCount;
      fill(own, kCount, r.rank(), round);
      r.world().all_gather(own, data, kCount, DataType::kFloat32);
      for (int q = 0; q < r.size(); ++q)
        expect_values(data + static_cast<std::size_t>(q) * kCount, kCount, q, round, "shared memory");
      r.world().barrier();
      // Any other call can also use this memory.
      TestBuffer<float> sum(r.world(), kCount, round == 1);
      r.world().all_reduce(own, sum.data(), kCount, DataType::kFloat32, ReduceOp::kMax);
      ASSERT_TRUE(elements_are(sum, kCount, [&](std::size_t i) { return value(r.size() - 1, round, i); }));
      r.world().broadcast(data, p * kCount, DataType::kFloat32, 0);
      TestBuffer<float> gathered(r.world(), p * kCount, false);
      r.world().all_gather(own, gathered.data(), kCount, DataType::kFloat32);
      for (int q = 0; q < r.size(); ++q)
        expect_values(gathered.data() + static_cast<std::size_t>(q) * kCount, kCount, q, round, "copied");
      r.world().all_reduce(own, own, kCount, DataType::kFloat32, ReduceOp::kSum);
      r.world().barrier();
    }
  });
}

// A rank may still have to write the result of an earlier call. The other ranks must not gather it before.
TEST_P(CommonMemoryContract, AGatherInSharedMemoryWaitsForEarlierResults) {
  run_ranks(options(), [](Rank& r) {
    const auto p = static_cast<std::size_t>(r.size());
    for (const std::size_t count : {std::size_t{200}, kMany}) {
      for (int round = 1; round <= rounds(20); ++round) {
        const auto memory = r.world().allocate_shared(p * count * sizeof(float));
        auto* const data = static_cast<float*>(memory.get());
        float* const own = data + static_cast<std::size_t>(r.rank()) * count;
        std::vector<float> input(count, static_cast<float>(round));
        const comm::StartOptions lazy{.progress = comm::Progress::kCaller};
        const Work sum = r.world().start_all_reduce(input.data(), own, count, DataType::kFloat32, ReduceOp::kSum, lazy);
        const Work gather = r.world().start_all_gather(own, data, count, DataType::kFloat32, lazy);
        if (r.rank() == round % r.size()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        gather.wait();
        ASSERT_TRUE(elements_are(data, p * count, static_cast<float>(round * r.size())));
        sum.wait();
        r.world().barrier();
      }
    }
  });
}

// A rank that is done with a call may write to the memory while a slower rank is still in the call. Here the last rank
// is late, and has its results in the memory that all ranks have in common.
TEST_P(CommonMemoryContract, ALateRankWritesNothingOverWhatCameAfterTheCall) {
  for (const std::size_t count : {100U, 20000U}) {
    run_ranks(options(), [&](Rank& r) {
      const auto p = static_cast<std::size_t>(r.size());
      const int last = r.size() - 1;
      const auto memory = r.world().allocate_shared(p * count * sizeof(float));
      auto* const data = static_cast<float*>(memory.get());
      float* const own = data + static_cast<std::size_t>(r.rank()) * count;
      std::vector<float> input(count, 1.0F);
      std::vector<float> elsewhere(p * count);
      float* const output = r.rank() == last ? data : elsewhere.data();
      const comm::StartOptions lazy{.progress = comm::Progress::kCaller};
      const auto come_late = [&](const Work& work, bool late) {
        if (late) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        work.wait();
      };
      // Rank 0 writes as soon as it may. In a group of one rank, rank 0 is also the last rank.
      const auto write_and_expect = [&](std::size_t n, float value) {
        if (r.rank() == 0) std::fill_n(data, n, value);
        r.world().barrier();
        ASSERT_TRUE(elements_are(data, n, value));
        r.world().barrier();
      };
      float* const sent = r.rank() == 0 ? input.data() : output;
      come_late(r.world().start_broadcast(sent, count, DataType::kFloat32, 0, lazy), r.rank() == last);
      write_and_expect(count, 2.0F);
      come_late(r.world().start_all_gather(input.data(), output, count, DataType::kFloat32, lazy), r.rank() == last);
      write_and_expect(p * count, 3.0F);
      come_late(r.world().start_all_reduce(input.data(), output, count, DataType::kFloat32, ReduceOp::kMax, lazy),
                r.rank() == last);
      write_and_expect(count, 4.0F);
      // In place: every rank writes its block again as soon as its call is done.
      std::fill_n(own, count, 5.0F);
      r.world().barrier();
      come_late(r.world().start_gather(own, data, count, DataType::kFloat32, 0, lazy), r.rank() == 0);
      std::fill_n(own, count, 6.0F);
      r.world().barrier();
      ASSERT_TRUE(elements_are(data, p * count, 6.0F));
      r.world().barrier();
    });
  }
}

TEST_P(CommonMemoryContract, SharedMemoryOfAPartIsForeignToTheWhole) {
  run_ranks(options(), [](Rank& r) {
    constexpr std::size_t kCount = 5000;
    auto part = r.world().split(r.rank() % 2);
    const auto memory = part->allocate_shared(kCount * sizeof(float));
    auto* const data = static_cast<float*>(memory.get());
    TestBuffer<float> sum(r.world(), kCount, false);
    r.world().all_reduce(data, sum.data(), kCount, DataType::kFloat32, ReduceOp::kSum);
    ASSERT_TRUE(elements_are(sum, kCount, 0.0F));
    r.world().barrier();
  });
}

TEST_P(CommonMemoryContract, SharedMemoryOfDifferentSizesIsRefusedByAll) {
  if (GetParam().ranks < 2) GTEST_SKIP() << "needs two ranks";
  run_ranks(options(), [](Rank& r) {
    EXPECT_THROW(r.world().allocate_shared(r.rank() == 1 ? 200 : 100), BackendError);
    r.world().barrier();
  });
}

}  // namespace reigen::testing
