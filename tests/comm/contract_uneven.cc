// The part of the contract on blocks of different sizes, messages, lists of calls and factors.
#include <gmock/gmock.h>

#include <numeric>

#include "comm/contract.h"
#include "reigen/base/error.h"
#include "reigen/comm/call_list.h"

namespace reigen::testing {
namespace {

using Counts = std::vector<std::size_t>;

// The sizes of blocks, from zero to more than any chunk. `shape` chooses them; they are the same on every rank.
Counts counts_of(int ranks, int shape) {
  Counts counts;
  for (int q = 0; q < ranks; ++q) {
    const auto i = static_cast<std::size_t>(q);
    switch (shape) {
      case 0: counts.push_back(0); break;
      case 1: counts.push_back(i); break;
      case 2: counts.push_back(q == 0 ? 300 : i % 2); break;
      case 3: counts.push_back(q + 1 == ranks ? kMany : 0); break;
      default: counts.push_back(1000 + 40000 * i); break;
    }
  }
  return counts;
}
constexpr int kShapes = 5;

std::size_t begin(const Counts& counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
}
std::size_t total(const Counts& counts) { return begin(counts, static_cast<int>(counts.size())); }
std::size_t count_at(const Counts& counts, int rank) { return counts[static_cast<std::size_t>(rank)]; }

// Element i of the block that rank q holds for rank r. Every sum is exact.
float value(int q, int r, std::size_t i) { return static_cast<float>(q * 5 + r * 3 + 1) + static_cast<float>(i % 13); }

void fill(float* data, std::size_t count, int q, int r) {
  for (std::size_t i = 0; i < count; ++i) data[i] = value(q, r, i);
}

void expect_values(const float* data, std::size_t count, int q, int r, const std::string& what) {
  ASSERT_TRUE(elements_are(data, count, [&](std::size_t i) { return value(q, r, i); })) << what;
}

void check_all_gather(Rank& r, const Counts& counts, bool foreign, bool in_place) {
  TestBuffer<float> own(r.world(), count_at(counts, r.rank()), foreign);
  TestBuffer<float> all(r.world(), total(counts), foreign);
  float* const input = in_place ? all.data() + begin(counts, r.rank()) : own.data();
  fill(input, count_at(counts, r.rank()), r.rank(), 0);
  r.world().all_gather_v(input, all.data(), counts, DataType::kFloat32);
  for (int q = 0; q < r.size(); ++q)
    expect_values(all.data() + begin(counts, q), count_at(counts, q), q, 0, "all_gather_v");
}

void check_reduce_scatter(Rank& r, const Counts& counts, bool foreign, bool in_place) {
  TestBuffer<float> input(r.world(), total(counts), foreign);
  TestBuffer<float> own(r.world(), count_at(counts, r.rank()), foreign);
  for (int q = 0; q < r.size(); ++q) fill(input.data() + begin(counts, q), count_at(counts, q), r.rank(), q);
  float* const output = in_place ? input.data() + begin(counts, r.rank()) : own.data();
  r.world().reduce_scatter_v(input.data(), output, counts, DataType::kFloat32, ReduceOp::kSum);
  ASSERT_TRUE(elements_are(output, count_at(counts, r.rank()), [&](std::size_t i) {
    float sum = 0;
    for (int q = 0; q < r.size(); ++q) sum += value(q, r.rank(), i);
    return sum;
  })) << "reduce_scatter_v";
}

void check_gather_and_scatter(Rank& r, const Counts& counts, bool foreign, int root) {
  const bool is_root = r.rank() == root;
  TestBuffer<float> own(r.world(), count_at(counts, r.rank()), foreign);
  TestBuffer<float> all(r.world(), is_root ? total(counts) : 0, foreign);
  fill(own.data(), own.size(), r.rank(), root);
  r.world().gather_v(own.data(), is_root ? all.data() : nullptr, counts, DataType::kFloat32, root);
  for (int q = 0; q < r.size() && is_root; ++q)
    expect_values(all.data() + begin(counts, q), count_at(counts, q), q, root, "gather_v");
  for (int q = 0; q < r.size() && is_root; ++q) fill(all.data() + begin(counts, q), count_at(counts, q), root, q);
  r.world().scatter_v(is_root ? all.data() : nullptr, own.data(), counts, DataType::kFloat32, root);
  expect_values(own.data(), own.size(), root, r.rank(), "scatter_v");
}

}  // namespace

TEST_P(CommunicatorContract, UnevenBlocksOfEverySize) {
  run_ranks(options(), [](Rank& r) {
    for (int shape = 0; shape < kShapes; ++shape) {
      const Counts counts = counts_of(r.size(), shape);
      for (const bool foreign : {false, true}) {
        for (const bool in_place : {false, true}) {
          check_all_gather(r, counts, foreign, in_place);
          check_reduce_scatter(r, counts, foreign, in_place);
        }
        for (int root = 0; root < r.size(); ++root) check_gather_and_scatter(r, counts, foreign, root);
      }
    }
  });
}

// Rank q sends (q + 2r) % 4 · unit elements to rank r.
TEST_P(CommunicatorContract, AllToAllOfUnevenBlocks) {
  run_ranks(options(), [](Rank& r) {
    const auto count = [](int q, int to, std::size_t unit) {
      return static_cast<std::size_t>((q + 2 * to) % 4) * unit;
    };
    for (const std::size_t unit : {0U, 1U, 17U, 30011U}) {
      for (const bool foreign : {false, true}) {
        Counts leaves;
        Counts arrives;
        for (int q = 0; q < r.size(); ++q) {
          leaves.push_back(count(r.rank(), q, unit));
          arrives.push_back(count(q, r.rank(), unit));
        }
        TestBuffer<float> input(r.world(), total(leaves), foreign);
        TestBuffer<float> output(r.world(), total(arrives), foreign && r.rank() == 0);
        for (int q = 0; q < r.size(); ++q) fill(input.data() + begin(leaves, q), count_at(leaves, q), r.rank(), q);
        r.world().all_to_all_v(input.data(), leaves, output.data(), arrives, DataType::kFloat32);
        for (int q = 0; q < r.size(); ++q)
          expect_values(output.data() + begin(arrives, q), count_at(arrives, q), q, r.rank(), "all_to_all_v");
      }
    }
  });
}

TEST_P(CommunicatorContract, CountsThatDifferAreAMismatch) {
  if (GetParam().ranks < 2) GTEST_SKIP() << "needs two ranks";
  if (!compares_calls(GetParam().backend)) GTEST_SKIP() << "counts that differ are not seen";
  run_ranks(options(), [](Rank& r) {
    Counts counts(static_cast<std::size_t>(r.size()), 10);
    counts[static_cast<std::size_t>(r.rank())] = 11;
    std::vector<float> input(11);
    std::vector<float> output(total(counts));
    try {
      r.world().all_gather_v(input.data(), output.data(), counts, DataType::kFloat32);
      ADD_FAILURE() << "different counts were accepted";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("differ in the counts"));
    }
  });
}

TEST_P(CommunicatorContract, WhatLeavesMustArrive) {
  if (GetParam().ranks < 2) GTEST_SKIP() << "needs two ranks";
  if (!compares_calls(GetParam().backend)) GTEST_SKIP() << "counts that differ are not seen";
  run_ranks(options(), [](Rank& r) {
    const Counts leaves(static_cast<std::size_t>(r.size()), 3);
    const Counts arrives(static_cast<std::size_t>(r.size()), r.rank() == 1 ? 4 : 3);
    std::vector<float> input(total(leaves));
    std::vector<float> output(total(arrives));
    EXPECT_THROW(r.world().all_to_all_v(input.data(), leaves, output.data(), arrives, DataType::kFloat32),
                 CollectiveMismatch);
  });
}

// Every rank sends to every other rank. The messages take every path and are in flight at the same time.
TEST_P(CommunicatorContract, MessagesArriveInTheirOrder) {
  if (GetParam().ranks < 2) GTEST_SKIP() << "needs two ranks";
  run_ranks(options(), [](Rank& r) {
    constexpr std::size_t kSizes[] = {0, 1, 200, 256, 257, 40000, kMany};
    for (const bool foreign : {false, true}) {
      std::vector<std::unique_ptr<TestBuffer<float>>> buffers;
      std::vector<Work> works;
      const auto buffer = [&](std::size_t count, bool is_foreign) {
        buffers.push_back(std::make_unique<TestBuffer<float>>(r.world(), count, is_foreign));
        return buffers.back()->data();
      };
      struct Expected {
        const float* data;
        std::size_t count;
        int from;
      };
      std::vector<Expected> expected;
      for (const std::size_t count : kSizes) {
        for (int q = 0; q < r.size(); ++q) {
          if (q == r.rank()) continue;
          float* const out = buffer(count, foreign);
          fill(out, count, r.rank(), q);
          float* const in = buffer(count, foreign && q % 2 == 0);
          works.push_back(r.world().start_send(out, count, DataType::kFloat32, q));
          works.push_back(r.world().start_recv(in, count, DataType::kFloat32, q));
          expected.push_back({in, count, q});
        }
      }
      for (const Work& work : works) work.wait();
      for (const Expected& e : expected) expect_values(e.data, e.count, e.from, r.rank(), "message");
    }
  });
}

TEST_P(CommunicatorContract, BlockingMessagesGoRoundTheRing) {
  if (GetParam().ranks < 2) GTEST_SKIP() << "needs two ranks";
  run_ranks(options(), [](Rank& r) {
    const int next = (r.rank() + 1) % r.size();
    const int previous = (r.rank() + r.size() - 1) % r.size();
    for (const std::size_t count : {std::size_t{1}, kMany}) {
      TestBuffer<std::int64_t> data(r.world(), count, true);
      data.fill(r.rank() == 0 ? 7 : 0);
      if (r.rank() == 0) r.world().send(data.data(), count, DataType::kInt64, next);
      r.world().recv(data.data(), count, DataType::kInt64, previous);
      if (r.rank() != 0) {
        for (std::size_t i = 0; i < count; ++i) data[i] += 1;
        r.world().send(data.data(), count, DataType::kInt64, next);
      }
      const std::int64_t steps = r.rank() == 0 ? r.size() - 1 : r.rank();
      ASSERT_TRUE(elements_are(data, count, 7 + steps));
    }
  });
}

// A rank waits for a message while the others are in a collective.
TEST_P(CommunicatorContract, MessagesPassByCollectives) {
  if (GetParam().ranks < 2) GTEST_SKIP() << "needs two ranks";
  run_ranks(options(), [](Rank& r) {
    for (int round = 0; round < 50; ++round) {
      TestBuffer<float> data(r.world(), 20000, true);
      data.fill(static_cast<float>(round));
      double sum = r.rank();
      if (r.rank() == 0) {
        const Work barrier = r.world().start_barrier();
        const Work work = r.world().start_all_reduce(&sum, &sum, 1, DataType::kFloat64, ReduceOp::kSum);
        r.world().send(data.data(), data.size(), DataType::kFloat32, 1);  // rank 1 has not yet called the barrier
        barrier.wait();
        work.wait();
      } else {
        if (r.rank() == 1) {
          data.fill(-1.0F);
          r.world().recv(data.data(), data.size(), DataType::kFloat32, 0);
          ASSERT_EQ(data[19999], static_cast<float>(round));
        }
        r.world().barrier();
        r.world().all_reduce(&sum, &sum, 1, DataType::kFloat64, ReduceOp::kSum);
      }
      ASSERT_EQ(sum, r.size() * (r.size() - 1) / 2);
    }
  });
}

TEST_P(CommunicatorContract, AMessageOfAnotherSizeIsAMismatch) {
  if (GetParam().ranks < 2) GTEST_SKIP() << "needs two ranks";
  run_ranks(options(), [](Rank& r) {
    float data[4] = {};
    r.world().barrier();
    try {
      if (r.rank() == 0) r.world().send(data, 3, DataType::kFloat32, 1, {.tag = "activations"});
      if (r.rank() == 1) r.world().recv(data, 4, DataType::kFloat32, 0, {.tag = "activations"});
      r.world().barrier();
      ADD_FAILURE() << "a message of 3 was received as one of 4";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("send(3 float32 \"activations\")"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("recv(4 float32 \"activations\")"));
    }
  });
}

TEST_P(CommunicatorContract, AListOfCallsRunsTogether) {
  run_ranks(options(), [](Rank& r) {
    constexpr std::size_t kTensors = 200;
    std::vector<std::vector<double>> tensors;
    for (std::size_t k = 0; k < kTensors; ++k) tensors.emplace_back(k % 50 + 1, r.rank() + 1.0);
    TestBuffer<float> out(r.world(), 50000, true);
    TestBuffer<float> in(r.world(), 50000, true);
    out.fill(static_cast<float>(r.rank()));
    in.fill(-1.0F);
    CallList calls;
    for (auto& tensor : tensors) {
      calls.all_reduce(tensor.data(), tensor.data(), tensor.size(), DataType::kFloat64, ReduceOp::kSum);
    }
    if (r.size() > 1) {
      calls.send(out.data(), out.size(), DataType::kFloat32, (r.rank() + 1) % r.size());
      calls.recv(in.data(), in.size(), DataType::kFloat32, (r.rank() + r.size() - 1) % r.size());
    }
    EXPECT_EQ(calls.size(), kTensors + (r.size() > 1 ? 2 : 0));
    const Work all = r.world().start(calls);
    all.wait();
    EXPECT_TRUE(all.is_completed());
    for (const auto& tensor : tensors) ASSERT_TRUE(elements_are(tensor, tensor.size(), r.size() * (r.size() + 1) / 2));
    if (r.size() > 1) {
      ASSERT_EQ(in[49999], static_cast<float>((r.rank() + r.size() - 1) % r.size()));
    }
    r.world().run(calls);  // a list can run again
    for (const auto& tensor : tensors)
      ASSERT_TRUE(elements_are(tensor, tensor.size(), r.size() * r.size() * (r.size() + 1) / 2));
    r.world().barrier();
  });
}

TEST_P(CommunicatorContract, OfAListWithABadCallNothingRuns) {
  run_ranks(options(), [](Rank& r) {
    double x = r.rank() + 1;
    CallList calls;
    calls.all_reduce(&x, &x, 1, DataType::kFloat64, ReduceOp::kSum);
    calls.broadcast(&x, 1, DataType::kFloat64, r.size());
    EXPECT_THROW(r.world().run(calls), InvalidArgument);
    EXPECT_THROW((void)r.world().start(calls), InvalidArgument);
    EXPECT_EQ(x, r.rank() + 1);
    r.world().barrier();
  });
}

TEST_P(CommunicatorContract, AnEmptyListOfCallsIsDone) {
  run_ranks(options(), [](Rank& r) {
    r.world().run({});
    const Work work = r.world().start({});
    EXPECT_TRUE(work.is_completed());
    work.wait();
    r.world().barrier();
  });
}

TEST_P(CommunicatorContract, EveryRankHasAFactorOfItsOwn) {
  run_ranks(options(), [](Rank& r) {
    const auto p = static_cast<std::size_t>(r.size());
    double expected = 0;
    for (int q = 0; q < r.size(); ++q) expected += (q + 1) * 0.5 * q;
    for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, kMany}) {
      for (const bool foreign : {false, true}) {
        TestBuffer<double> data(r.world(), count * p, foreign);
        TestBuffer<double> out(r.world(), count, foreign);
        const auto fill_all = [&] {
          for (std::size_t i = 0; i < data.size(); ++i) data[i] = r.rank() + 1;
        };
        const comm::CallOptions factor{.factor = 0.5 * r.rank()};
        fill_all();
        r.world().all_reduce(data.data(), data.data(), count, DataType::kFloat64, ReduceOp::kSum, factor);
        ASSERT_TRUE(elements_are(data, count, expected));
        fill_all();
        r.world().reduce_scatter(data.data(), out.data(), count, DataType::kFloat64, ReduceOp::kSum, factor);
        ASSERT_TRUE(elements_are(out, count, expected));
      }
    }
    float x = 1;
    EXPECT_THROW(r.world().all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kMax, {.factor = 2}), InvalidArgument);
    EXPECT_THROW(r.world().all_reduce(&x, &x, 1, DataType::kInt32, ReduceOp::kSum, {.factor = 2}), InvalidArgument);
    EXPECT_THROW(r.world().broadcast(&x, 1, DataType::kFloat32, 0, {.factor = 2}), InvalidArgument);
  });
}

TEST_P(CommunicatorContract, BadUnevenCallsAreRefusedBeforeAnythingMoves) {
  run_ranks(options(), [](Rank& r) {
    std::vector<float> data(64);
    const Counts too_many(static_cast<std::size_t>(r.size()) + 1, 1);
    const Counts enormous(static_cast<std::size_t>(r.size()), SIZE_MAX / 5);
    EXPECT_THROW(r.world().all_gather_v(data.data(), data.data(), too_many, DataType::kFloat32), InvalidArgument);
    EXPECT_THROW(r.world().all_gather_v(data.data(), data.data(), enormous, DataType::kFloat32), InvalidArgument);
    EXPECT_THROW(r.world().send(data.data(), 1, DataType::kFloat32, r.rank()), InvalidArgument);
    EXPECT_THROW(r.world().send(data.data(), 1, DataType::kFloat32, r.size()), InvalidArgument);
    EXPECT_THROW(r.world().recv(nullptr, 1, DataType::kFloat32, (r.rank() + 1) % r.size()), InvalidArgument);
    r.world().barrier();
  });
}

}  // namespace reigen::testing
