#include "comm/contract.h"

#include "harness/sanitizer.h"
#include "reigen/base/error.h"

namespace reigen::testing {

namespace {

constexpr std::size_t kCounts[] = {0, 1, 10, 1000, kMany};

// Small whole numbers: every sum is exact in every type, so the expected value is a formula.
template <typename T>
T value_of(int rank, std::size_t i) {
  return static_cast<T>((static_cast<std::size_t>(rank) + 1) * (i % 5 + 1));
}

template <typename T>
T sum_of(int ranks, std::size_t i) {
  const auto p = static_cast<std::size_t>(ranks);
  return static_cast<T>(p * (p + 1) / 2 * (i % 5 + 1));
}

template <typename T>
void check_all_reduce(Rank& r, DataType type, std::size_t count, bool foreign_input, bool foreign_output,
                      bool in_place) {
  auto& world = r.world();
  TestBuffer<T> input(world, count, foreign_input);
  TestBuffer<T> output(world, count, foreign_output);
  for (std::size_t i = 0; i < count; ++i) input[i] = value_of<T>(r.rank(), i);
  T* result = in_place ? input.data() : output.data();
  world.all_reduce(input.data(), result, count, type, ReduceOp::kSum);
  ASSERT_TRUE(elements_are(result, count, [&](std::size_t i) { return sum_of<T>(r.size(), i); })) << "of " << count;
  if (!in_place) {
    ASSERT_TRUE(elements_are(input, count, [&](std::size_t i) { return value_of<T>(r.rank(), i); })) << "input changed";
  }
}

}  // namespace

TEST_P(CommunicatorContract, AllReduceSums) {
  run_ranks(options(), [](Rank& r) {
    for (const std::size_t count : kCounts) {
      for (const bool foreign : {false, true}) {
        for (const bool in_place : {false, true}) {
          check_all_reduce<float>(r, DataType::kFloat32, count, foreign, foreign, in_place);
          check_all_reduce<double>(r, DataType::kFloat64, count, foreign, foreign, in_place);
          check_all_reduce<std::int32_t>(r, DataType::kInt32, count, foreign, foreign, in_place);
          check_all_reduce<std::int64_t>(r, DataType::kInt64, count, foreign, foreign, in_place);
        }
      }
    }
  });
}

TEST_P(CommunicatorContract, AllReduceMixesSharedAndForeignMemory) {
  run_ranks(options(), [](Rank& r) {
    for (int pattern = 0; pattern < 8; ++pattern) {
      const bool foreign_input = ((pattern >> (r.rank() % 3)) & 1) != 0;
      check_all_reduce<float>(r, DataType::kFloat32, kMany, foreign_input, pattern % 2 == 0, false);
    }
  });
}

TEST_P(CommunicatorContract, AllReduceAveragesAndFindsExtremes) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    constexpr std::size_t kCount = 1003;
    TestBuffer<double> data(world, kCount, false);
    const auto fill = [&] {
      for (std::size_t i = 0; i < kCount; ++i) data[i] = value_of<double>(r.rank(), i);
    };
    fill();
    world.all_reduce(data.data(), data.data(), kCount, DataType::kFloat64, ReduceOp::kAvg);
    ASSERT_TRUE(elements_are(data, kCount, [&](std::size_t i) { return sum_of<double>(r.size(), i) / r.size(); }));
    fill();
    world.all_reduce(data.data(), data.data(), kCount, DataType::kFloat64, ReduceOp::kMax);
    ASSERT_TRUE(elements_are(data, kCount, [&](std::size_t i) { return value_of<double>(r.size() - 1, i); }));
    fill();
    world.all_reduce(data.data(), data.data(), kCount, DataType::kFloat64, ReduceOp::kMin);
    ASSERT_TRUE(elements_are(data, kCount, [&](std::size_t i) { return value_of<double>(0, i); }));
  });
}

// The sum of these values depends on the order of additions. The bits must be equal on all ranks, for all kinds of
// memory and in every repetition.
TEST_P(CommunicatorContract, SumsRunInRankOrder) {
  if (!adds_in_rank_order(GetParam().backend) && GetParam().ranks > 2) GTEST_SKIP() << "the engine decides the order";
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    constexpr std::size_t kCount = 70001;
    const auto value = [](int rank, std::size_t i) {
      return 1.0f / static_cast<float>(i % 1013 + 3) * (rank % 2 == 0 ? 1.0f : -0.7f) + static_cast<float>(rank);
    };
    for (const bool foreign : {false, true}) {
      TestBuffer<float> data(world, kCount, foreign);
      for (std::size_t i = 0; i < kCount; ++i) data[i] = value(r.rank(), i);
      world.all_reduce(data.data(), data.data(), kCount, DataType::kFloat32, ReduceOp::kSum);
      ASSERT_TRUE(elements_are(data, kCount, [&](std::size_t i) {
        float expected = value(0, i);
        for (int q = 1; q < r.size(); ++q) expected += value(q, i);
        return expected;
      }));
    }
  });
}

TEST_P(CommunicatorContract, BroadcastCopiesTheRoot) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    for (const std::size_t count : kCounts) {
      for (int root = 0; root < r.size(); ++root) {
        for (const bool foreign : {false, true}) {
          TestBuffer<float> data(world, count, foreign);
          for (std::size_t i = 0; i < count; ++i) data[i] = r.rank() == root ? static_cast<float>(i) : -1.0f;
          world.broadcast(data.data(), count, DataType::kFloat32, root);
          ASSERT_TRUE(elements_are(data, count, [&](std::size_t i) { return static_cast<float>(i); }));
        }
      }
    }
  });
}

TEST_P(CommunicatorContract, AllGatherCollectsInRankOrder) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    const auto p = static_cast<std::size_t>(r.size());
    for (const std::size_t count : kCounts) {
      for (const bool foreign : {false, true}) {
        for (const bool in_place : {false, true}) {
          TestBuffer<std::int32_t> input(world, count, foreign);
          TestBuffer<std::int32_t> output(world, count * p, foreign);
          std::int32_t* own = in_place ? output.data() + static_cast<std::size_t>(r.rank()) * count : input.data();
          for (std::size_t i = 0; i < count; ++i) own[i] = r.rank() * 1000000 + static_cast<std::int32_t>(i);
          world.all_gather(own, output.data(), count, DataType::kInt32);
          for (std::size_t q = 0; q < p; ++q) {
            ASSERT_TRUE(elements_are(output.data() + q * count, count, [&](std::size_t i) { return q * 1000000 + i; }));
          }
        }
      }
    }
  });
}

namespace {

// Counts around every limit at which backends change their path: inline, staged, several rounds.
std::vector<std::size_t> counts_for(int ranks) {
  const auto p = static_cast<std::size_t>(ranks);
  return {0, 1, p - 1, p + 1, 64, 257, 511, 513, 1000, kMany};
}

// Element i of the block that rank q holds for rank r. Every sum is exact.
float block_value(int q, int r, std::size_t i) {
  return static_cast<float>((q + 1) * 3 + r * 7) + static_cast<float>(i % 11);
}

float block_sum(int ranks, int r, std::size_t i) {
  float sum = 0;
  for (int q = 0; q < ranks; ++q) sum += block_value(q, r, i);
  return sum;
}

struct Layout {
  bool foreign;
  bool in_place;
};

constexpr Layout kLayouts[] = {{false, false}, {false, true}, {true, false}, {true, true}};

}  // namespace

TEST_P(CommunicatorContract, ReduceScatterAddsBlocks) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    const auto p = static_cast<std::size_t>(r.size());
    for (const std::size_t count : counts_for(r.size())) {
      for (const Layout layout : kLayouts) {
        TestBuffer<float> input(world, count * p, layout.foreign);
        TestBuffer<float> output(world, count, layout.foreign);
        for (std::size_t b = 0; b < p; ++b)
          for (std::size_t i = 0; i < count; ++i) input[b * count + i] = block_value(r.rank(), static_cast<int>(b), i);
        float* out = layout.in_place ? input.data() + static_cast<std::size_t>(r.rank()) * count : output.data();
        world.reduce_scatter(input.data(), out, count, DataType::kFloat32, ReduceOp::kSum);
        ASSERT_TRUE(elements_are(out, count, [&](std::size_t i) { return block_sum(r.size(), r.rank(), i); })) << count;
        for (int b = 0; b < r.size(); ++b) {
          if (b == r.rank()) continue;
          const float* const block = input.data() + static_cast<std::size_t>(b) * count;
          ASSERT_TRUE(elements_are(block, count, [&](std::size_t i) { return block_value(r.rank(), b, i); }))
              << "input changed";
        }
      }
    }
  });
}

TEST_P(CommunicatorContract, EachRankMayChooseItsMemoryAndWhetherInPlace) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    const auto p = static_cast<std::size_t>(r.size());
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, kMany}) {
      for (int turn = 0; turn < 4; ++turn) {
        const Layout layout = kLayouts[static_cast<std::size_t>(r.rank() + turn) % 4];
        TestBuffer<float> input(world, count * p, layout.foreign);
        TestBuffer<float> output(world, count * p, layout.foreign);
        for (std::size_t i = 0; i < count; ++i) input[i] = block_value(r.rank(), 0, i);
        float* sum = layout.in_place ? input.data() : output.data();
        world.all_reduce(input.data(), sum, count, DataType::kFloat32, ReduceOp::kSum);
        ASSERT_TRUE(elements_are(sum, count, [&](std::size_t i) { return block_sum(r.size(), 0, i); })) << count;
        float* own = layout.in_place ? output.data() + static_cast<std::size_t>(r.rank()) * count : input.data();
        for (std::size_t i = 0; i < count; ++i) own[i] = block_value(r.rank(), 1, i);
        world.all_gather(own, output.data(), count, DataType::kFloat32);
        ASSERT_TRUE(elements_are(output, count * p, [&](std::size_t i) {
          return block_value(static_cast<int>(i / count), 1, i % count);
        })) << count;
      }
    }
  });
}

TEST_P(CommunicatorContract, ReduceAddsAtTheRoot) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    for (const std::size_t count : counts_for(r.size())) {
      for (int root = 0; root < r.size(); root += 2) {
        for (const Layout layout : kLayouts) {
          TestBuffer<float> input(world, count, layout.foreign);
          TestBuffer<float> output(world, count, layout.foreign);
          for (std::size_t i = 0; i < count; ++i) input[i] = block_value(r.rank(), 0, i);
          const bool is_root = r.rank() == root;
          float* out = !is_root ? nullptr : layout.in_place ? input.data() : output.data();
          world.reduce(input.data(), out, count, DataType::kFloat32, ReduceOp::kSum, root);
          if (is_root) {
            ASSERT_TRUE(elements_are(out, count, [&](std::size_t i) { return block_sum(r.size(), 0, i); })) << count;
          }
          if (!is_root || !layout.in_place) {
            ASSERT_TRUE(elements_are(input, count, [&](std::size_t i) { return block_value(r.rank(), 0, i); }))
                << "input changed";
          }
        }
      }
    }
  });
}

TEST_P(CommunicatorContract, GatherCollectsAtTheRoot) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    const auto p = static_cast<std::size_t>(r.size());
    for (const std::size_t count : counts_for(r.size())) {
      for (int root = r.size() - 1; root >= 0; root -= 2) {
        for (const Layout layout : kLayouts) {
          const bool is_root = r.rank() == root;
          TestBuffer<float> input(world, count, layout.foreign && r.rank() % 2 == 0);
          TestBuffer<float> output(world, count * p, layout.foreign);
          float* own =
              is_root && layout.in_place ? output.data() + static_cast<std::size_t>(root) * count : input.data();
          for (std::size_t i = 0; i < count; ++i) own[i] = block_value(r.rank(), 0, i);
          world.gather(own, is_root ? output.data() : nullptr, count, DataType::kFloat32, root);
          ASSERT_TRUE(elements_are(output, is_root ? count * p : 0, [&](std::size_t i) {
            return block_value(static_cast<int>(i / count), 0, i % count);
          })) << count;
        }
      }
    }
  });
}

TEST_P(CommunicatorContract, ScatterHandsOutTheRootsBlocks) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    const auto p = static_cast<std::size_t>(r.size());
    for (const std::size_t count : counts_for(r.size())) {
      for (int root = 0; root < r.size(); root += 2) {
        for (const Layout layout : kLayouts) {
          const bool is_root = r.rank() == root;
          TestBuffer<float> input(world, count * p, layout.foreign);
          TestBuffer<float> output(world, count, layout.foreign);
          for (std::size_t i = 0; is_root && i < count * p; ++i)
            input[i] = block_value(root, static_cast<int>(i / count), i % count);
          float* out =
              is_root && layout.in_place ? input.data() + static_cast<std::size_t>(root) * count : output.data();
          world.scatter(is_root ? input.data() : nullptr, out, count, DataType::kFloat32, root);
          ASSERT_TRUE(elements_are(out, count, [&](std::size_t i) { return block_value(root, r.rank(), i); })) << count;
        }
      }
    }
  });
}

TEST_P(CommunicatorContract, AllToAllExchangesBlocks) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    const auto p = static_cast<std::size_t>(r.size());
    for (const std::size_t count : counts_for(r.size())) {
      for (const bool foreign : {false, true}) {
        TestBuffer<float> input(world, count * p, foreign);
        TestBuffer<float> output(world, count * p, foreign && r.rank() % 2 == 0);
        for (std::size_t i = 0; i < count * p; ++i)
          input[i] = block_value(r.rank(), static_cast<int>(i / count), i % count);
        world.all_to_all(input.data(), output.data(), count, DataType::kFloat32);
        for (std::size_t q = 0; q < p; ++q) {
          const auto expected = [&](std::size_t i) { return block_value(static_cast<int>(q), r.rank(), i); };
          ASSERT_TRUE(elements_are(output.data() + q * count, count, expected)) << q;
        }
      }
    }
  });
}

// Calls of every kind, shape and kind of memory are in flight at once. A call may read the data that the call before it
// writes.
TEST_P(CommunicatorContract, MixedCallsInFlightKeepTheirOrder) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    const auto p = static_cast<std::size_t>(r.size());
    constexpr std::size_t kMost = 3000;
    for (int round = 0; round < rounds(60); ++round) {
      const std::size_t count = round % 3 == 0 ? 40 : round % 3 == 1 ? 700 : kMost;
      const int root = round % r.size();
      TestBuffer<std::int64_t> a(world, count * p, round % 4 == 1);
      TestBuffer<std::int64_t> b(world, count * p, round % 4 == 2);
      TestBuffer<std::int64_t> c(world, count, false);
      for (std::size_t i = 0; i < count * p; ++i) a[i] = static_cast<std::int64_t>(i) + r.rank();
      const comm::StartOptions async{.progress = round % 2 == 0 ? comm::Progress::kThread : comm::Progress::kCaller};
      const DataType type = DataType::kInt64;
      std::vector<Work> works;
      works.push_back(world.start_all_to_all(a.data(), b.data(), count, type, async));  // b[q][i] = r·count + i + q
      works.push_back(world.start_reduce_scatter(b.data(), c.data(), count, type, ReduceOp::kSum, async));
      works.push_back(world.start_all_reduce(c.data(), c.data(), count, type, ReduceOp::kMax, async));
      works.push_back(world.start_gather(c.data(), r.rank() == root ? a.data() : nullptr, count, type, root, async));
      works.push_back(world.start_scatter(r.rank() == root ? a.data() : nullptr, c.data(), count, type, root, async));
      works.push_back(world.start_reduce(c.data(), r.rank() == root ? c.data() : nullptr, count, type, ReduceOp::kMin,
                                         root, async));
      works.push_back(world.start_broadcast(c.data(), count, type, root, async));
      works.push_back(world.start_barrier(async));
      for (const auto& work : works) work.wait();
      const auto ranks = static_cast<std::int64_t>(p);
      const auto n = static_cast<std::int64_t>(count);
      // Block r of rank q after the exchange: q·count + i + r; summed over q: ranks·(i + r) + count·ranks(ranks-1)/2.
      const auto largest = [&](std::size_t i) {
        return ranks * (static_cast<std::int64_t>(i) + ranks - 1) + n * ranks * (ranks - 1) / 2;
      };
      ASSERT_TRUE(elements_are(c, count, largest)) << "round " << round;
    }
  });
}

TEST_P(CommunicatorContract, BarrierHoldsUntilAllHaveCome) {
  run_ranks(options(), [](Rank& r) {
    for (int round = 0; round < 50; ++round) {
      const std::string key = "came/" + std::to_string(round);
      r.store().add(key, 1);
      r.world().barrier();
      ASSERT_EQ(r.store().add(key, 0), r.size());
      r.world().barrier();
    }
  });
}

TEST_P(CommunicatorContract, ManyAsynchronousCallsCompleteInOrder) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    constexpr int kCalls = 200;  // more than can be in flight at once
    for (const auto progress : {comm::Progress::kThread, comm::Progress::kCaller}) {
      std::vector<TestBuffer<float>> data;
      std::vector<Work> works;
      for (int k = 0; k < kCalls; ++k) data.emplace_back(world, 500, k % 7 == 0);
      for (std::size_t k = 0; k < kCalls; ++k) {
        for (std::size_t i = 0; i < 500; ++i) data[k][i] = static_cast<float>(r.rank() + 1) * static_cast<float>(k);
        works.push_back(world.start_all_reduce(data[k].data(), data[k].data(), 500, DataType::kFloat32, ReduceOp::kSum,
                                               {.progress = progress}));
        if (k % 3 == 0) world.poll();
      }
      works.back().wait();
      for (const auto& work : works) ASSERT_TRUE(work.is_completed());
      for (std::size_t k = 0; k < kCalls; ++k)
        ASSERT_EQ(data[k][499], sum_of<float>(r.size(), 0) * static_cast<float>(k));
    }
  });
}

TEST_P(CommunicatorContract, TheProgressThreadCompletesWhatNobodyWaitsFor) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> data(world, 100000, false);
    data[7] = 1.0f;
    const Work work = world.start_all_reduce(data.data(), data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum);
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    while (!work.is_completed() && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(work.is_completed());
    EXPECT_EQ(data[7], static_cast<float>(r.size()));
  });
}

TEST_P(CommunicatorContract, BlockingCallsFollowAsynchronousOnes) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    float first = 1.0f;
    float second = 2.0f;
    const Work work = world.start_all_reduce(&first, &first, 1, DataType::kFloat32, ReduceOp::kSum);
    world.all_reduce(&second, &second, 1, DataType::kFloat32, ReduceOp::kSum);
    EXPECT_TRUE(work.is_completed());
    EXPECT_EQ(first, static_cast<float>(r.size()));
    EXPECT_EQ(second, 2.0f * static_cast<float>(r.size()));
  });
}

TEST_P(CommunicatorContract, TwoGroupsDoNotMeet) {
  run_ranks(options(), [](Rank& r) {
    Communicator a = r.make_group("a");
    Communicator b = r.make_group("b");
    TestBuffer<float> x(a, 30000, true);
    TestBuffer<float> y(b, 20000, true);
    for (int round = 0; round < 20; ++round) {
      x.fill(1.0f);
      y.fill(2.0f);
      const Work wa = a.start_all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum);
      const Work wb = b.start_all_reduce(y.data(), y.data(), y.size(), DataType::kFloat32, ReduceOp::kSum);
      if (r.rank() % 2 == 0) {
        wa.wait();
        wb.wait();
      } else {
        wb.wait();
        wa.wait();
      }
      ASSERT_EQ(x[29999], static_cast<float>(r.size()));
      ASSERT_EQ(y[19999], 2.0f * static_cast<float>(r.size()));
    }
  });
}

TEST_P(CommunicatorContract, SplitMakesGroupsByColourInTheOrderOfKeys) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    const int color = r.rank() % 2;
    auto part = world.split(color, -r.rank());  // in reverse order
    ASSERT_TRUE(part.has_value());
    const int members = (r.size() + 1 - color) / 2;
    EXPECT_EQ(part->size(), members);
    EXPECT_EQ(part->rank(), members - 1 - r.rank() / 2);
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(members));
    const std::int32_t own = r.rank();
    part->all_gather(&own, ranks.data(), 1, DataType::kInt32);
    for (int i = 0; i < members; ++i) EXPECT_EQ(ranks[static_cast<std::size_t>(i)], 2 * (members - 1 - i) + color);
    const auto none = world.split(r.rank() == 0 ? 3 : -1);
    EXPECT_EQ(none.has_value(), r.rank() == 0);
    world.barrier();
  });
}

TEST_P(CommunicatorContract, OverlappingGroupsInFlightDoNotDisturbEachOther) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    auto halves = world.split(r.rank() % 2);
    auto reversed = world.split(0, -r.rank());
    for (int round = 0; round < rounds(40); ++round) {
      const std::size_t count = round % 3 == 0 ? 20 : 20000;
      TestBuffer<float> a(world, count, round % 4 == 3);
      TestBuffer<float> b(world, count, round % 4 == 2);
      TestBuffer<float> c(world, count, false);
      for (std::size_t i = 0; i < count; ++i) {
        a[i] = static_cast<float>(r.rank() + 1);
        b[i] = 1.0f;
        c[i] = static_cast<float>(r.rank());
      }
      const comm::StartOptions async{};
      const Work wa = world.start_all_reduce(a.data(), a.data(), count, DataType::kFloat32, ReduceOp::kSum, async);
      const Work wb = halves->start_all_reduce(b.data(), b.data(), count, DataType::kFloat32, ReduceOp::kSum, async);
      const Work wc = reversed->start_broadcast(c.data(), count, DataType::kFloat32, 0, async);
      if ((r.rank() + round) % 2 == 0) wc.wait();
      wb.wait();
      wa.wait();
      wc.wait();
      for (const std::size_t i : {std::size_t{0}, count / 2, count - 1}) {
        ASSERT_EQ(a[i], static_cast<float>(r.size() * (r.size() + 1) / 2));
        ASSERT_EQ(b[i], static_cast<float>(halves->size()));
        ASSERT_EQ(c[i], static_cast<float>(r.size() - 1));
      }
    }
  });
}

TEST_P(CommunicatorContract, BadArgumentsAreRefusedBeforeAnythingMoves) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    float x = 1.0f;
    EXPECT_THROW(world.broadcast(&x, 1, DataType::kFloat32, r.size()), InvalidArgument);
    EXPECT_THROW(world.broadcast(&x, 1, DataType::kFloat32, -1), InvalidArgument);
    EXPECT_THROW(world.all_reduce(nullptr, &x, 1, DataType::kFloat32, ReduceOp::kSum), InvalidArgument);
    EXPECT_THROW(world.barrier({.tag = std::string(48, 'x')}), InvalidArgument);
    EXPECT_THROW(world.all_reduce(&x, &x, std::size_t{1} << 62, DataType::kFloat32, ReduceOp::kSum), InvalidArgument);
    world.all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kSum);  // the group remains usable
    EXPECT_EQ(x, static_cast<float>(r.size()));
  });
}

TEST_P(CommunicatorContract, AbortEndsEveryRankWithTheCause) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    world.barrier();
    meet(r, "left the barrier");
    if (r.rank() == 0) world.abort("the disk burns");
    try {
      world.barrier();
      ADD_FAILURE() << "the barrier of an aborted group returned";
    } catch (const Aborted& error) {
      EXPECT_NE(std::string(error.what()).find("the disk burns"), std::string::npos) << error.what();
    }
    EXPECT_THROW(world.barrier(), Aborted);
  });
}

}  // namespace reigen::testing
