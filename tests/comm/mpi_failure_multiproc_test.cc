// Failures between ranks that mpirun started. mpirun itself ends a job if a rank dies. The tests check that the job
// ends soon and with an exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "harness/ranks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using ::testing::HasSubstr;
using Call = std::function<void(Communicator&)>;

RankOptions mpi_ranks(int ranks) { return {.ranks = ranks, .kind = RankKind::kMpi, .backend = "mpi"}; }

std::vector<float>& scratch() {
  static std::vector<float> data(1000);
  return data;
}

Call all_reduce(std::size_t count, DataType type = DataType::kFloat32, ReduceOp op = ReduceOp::kSum,
                const std::string& tag = "") {
  return [=](Communicator& c) { c.all_reduce(scratch().data(), scratch().data(), count, type, op, {.tag = tag}); };
}

// Rank 2 calls `odd`, the others `usual`. Every rank gets the same message with these words.
void expect_mismatch(const Call& usual, const Call& odd, const std::vector<std::string>& words) {
  run_ranks(mpi_ranks(3), [&](Rank& r) {
    r.world().barrier();
    try {
      (r.rank() == 2 ? odd : usual)(r.world());
      ADD_FAILURE() << "rank " << r.rank() << " did not notice";
    } catch (const CollectiveMismatch& error) {
      for (const auto& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
    }
    EXPECT_THROW(r.world().barrier(), Aborted);
  });
}

TEST(MpiMismatch, OfTheOperation) {
  expect_mismatch(
      all_reduce(100), [](Communicator& c) { c.broadcast(scratch().data(), 100, DataType::kFloat32, 0); },
      {"operation", "rank 2: broadcast(100 float32, root 0)", "rank 0: all_reduce(100 float32, sum)", "#1"});
}
TEST(MpiMismatch, OfTheCount) {
  expect_mismatch(all_reduce(100), all_reduce(101),
                  {"count", "all_reduce(101 float32, sum)", "all_reduce(100 float32, sum)"});
}
TEST(MpiMismatch, OfTheReductionAndTheTag) {
  expect_mismatch(all_reduce(100), all_reduce(100, DataType::kFloat32, ReduceOp::kMax), {"reduction", "max", "sum"});
  expect_mismatch(all_reduce(100, DataType::kFloat32, ReduceOp::kSum, "step 3"),
                  all_reduce(100, DataType::kFloat32, ReduceOp::kSum, "step 4"), {"tag", "step 3", "step 4"});
}

TEST(MpiMismatch, OfASkippedCall) {
  run_ranks(mpi_ranks(2), [](Rank& r) {
    auto& world = r.world();
    float x = 1.0f;
    if (r.rank() == 0) {
      const Work work = world.start_all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kSum);
      EXPECT_THROW(work.wait(), CollectiveMismatch);
    } else {
      EXPECT_THROW(world.broadcast(&x, 1, DataType::kFloat32, 0), CollectiveMismatch);
    }
  });
}

TEST(MpiFailure, ARankThatLeavesIsNamed) {
  run_ranks(mpi_ranks(3), [](Rank& r) {
    r.world().barrier({.tag = "last words"});
    if (r.rank() == 1) {
      r.leave();
      return;
    }
    try {
      r.world().barrier();
      ADD_FAILURE() << "a barrier without rank 1 returned";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), HasSubstr("left the group"));
      EXPECT_THAT(error.what(), HasSubstr("last words"));
    }
  });
}

// Two of three ranks differ in the counts of their exchange. The third waits inside MPI until it gets the cause of the
// end.
TEST(MpiMismatch, OfAnExchangeThatTwoSeeDifferently) {
  run_ranks(mpi_ranks(3), [](Rank& r) {
    const std::vector<std::size_t> leaves(3, 2);
    std::vector<std::size_t> arrives(3, 2);
    if (r.rank() == 1) arrives[2] = 5;
    std::vector<float> into(9);
    try {
      r.world().all_to_all_v(scratch().data(), leaves, into.data(), arrives, DataType::kFloat32);
      r.world().barrier();
      ADD_FAILURE() << "rank " << r.rank() << " did not notice";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 2 gives 2 elements to rank 1"));
      EXPECT_THAT(error.what(), HasSubstr("5 elements, as rank 1 said"));
    }
  });
}

// Rank 1 waits for a short message from rank 0, or for rank 0 to receive a long one, but rank 0 has left.
TEST(MpiFailure, ARankThatLeftIsMissedByMessages) {
  for (const std::size_t count : {std::size_t{10}, std::size_t{8} << 20}) {
    run_ranks(mpi_ranks(2), [count](Rank& r) {
      auto& world = r.world();
      std::vector<float> data(count);
      world.barrier();
      if (r.rank() == 0) {
        world.send(data.data(), 3, DataType::kFloat32, 1);
        return r.leave();
      }
      world.recv(data.data(), 3, DataType::kFloat32, 0);  // rank 0 sent this before it left
      try {
        if (count == 10) world.recv(data.data(), count, DataType::kFloat32, 0, {.tag = "step 9"});
        if (count > 10) world.send(data.data(), count, DataType::kFloat32, 0, {.tag = "step 9"});
        ADD_FAILURE() << "nobody was there";
      } catch (const PeerLost& error) {
        EXPECT_EQ(error.rank(), 0);
        EXPECT_THAT(error.what(), HasSubstr("left the group"));
        EXPECT_THAT(error.what(), HasSubstr("step 9"));
      }
    });
  }
}

TEST(MpiFailure, AMessageThatNobodySendsIsATimeout) {
  RankOptions options = mpi_ranks(2);
  options.timeout = std::chrono::milliseconds(1000);
  options.report_after = std::chrono::milliseconds(100);
  run_ranks(options, [](Rank& r) {
    auto& world = r.world();
    world.barrier();
    if (r.rank() == 1) {
      r.store().get("over", Deadline::after(std::chrono::seconds(30)));
      EXPECT_THROW((world.barrier(), world.barrier()), Timeout);
      return;
    }
    try {
      world.recv(scratch().data(), 1, DataType::kFloat32, 1, {.tag = "step 9"});
      ADD_FAILURE() << "returned without a message";
    } catch (const Timeout& error) {
      EXPECT_THAT(error.what(), HasSubstr("message #0 from rank 1 (1 float32 \"step 9\")"));
      EXPECT_THAT(error.what(), HasSubstr("rank 1: its last call was #0 barrier"));
    }
    r.store().set("over", "1");
  });
}

TEST(MpiFailure, RanksHaveNoMemoryInCommon) {
  run_ranks(mpi_ranks(2), [](Rank& r) {
    EXPECT_THROW(r.world().allocate_shared(100), BackendError);
    r.world().barrier();
  });
}

TEST(MpiFailure, ALiveRankThatDoesNotComeIsATimeout) {
  RankOptions options = mpi_ranks(3);
  options.timeout = std::chrono::milliseconds(1000);
  options.report_after = std::chrono::milliseconds(100);
  run_ranks(options, [](Rank& r) {
    auto& world = r.world();
    world.barrier();
    if (r.rank() == 2) {
      for (const char* key : {"over/0", "over/1"}) r.store().get(key, Deadline::after(std::chrono::seconds(30)));
      // The others passed their part of the barrier to MPI before their timeout, so one barrier may return here.
      EXPECT_THROW((world.barrier({.tag = "step 9"}), world.barrier()), Timeout);
      return;
    }
    try {
      world.barrier({.tag = "step 9"});
      ADD_FAILURE() << "returned without rank 2";
    } catch (const Timeout& error) {
      EXPECT_THAT(error.what(), HasSubstr("step 9"));
      EXPECT_THAT(error.what(), HasSubstr("rank 2: its last call was #0 barrier"));
    }
    r.store().set("over/" + std::to_string(r.rank()), "1");
  });
}

TEST(MpiFailure, AStoppedRankIsNamed) {
  RankOptions options = mpi_ranks(3);
  options.fault = stop(rank(1)).at_step(2);
  options.heartbeat_timeout = std::chrono::seconds(2);
  const auto ends = run_ranks(options, [](Rank& r) {
    std::vector<float> x(200000, 1.0f);
    try {
      for (int step = 0; step < 1000; ++step) {
        r.step(step);
        r.world().all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kAvg);
      }
    } catch (const PeerLost& error) {
      std::fprintf(stderr, "lost rank %d: %s\n", error.rank(), error.what());
      std::exit(79);  // mpirun ends the stopped rank
    }
  });
  EXPECT_EQ(ends[0].exit_code, 79) << ends[0].output;
  EXPECT_THAT(ends[0].output, HasSubstr("lost rank 1: rank 1"));
  EXPECT_THAT(ends[0].output, HasSubstr("no sign of life"));
}

TEST(MpiFailure, TheJobOfAKilledRankEnds) {
  RankOptions options = mpi_ranks(3);
  options.fault = kill(rank(2)).at_step(3);
  options.limit = std::chrono::seconds(20);
  const auto ends = run_ranks(options, [](Rank& r) {
    std::vector<float> x(200000, 1.0f);
    for (int step = 0; step < 1000; ++step) {
      r.step(step);
      r.world().all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kAvg);
    }
  });
  EXPECT_NE(ends[0].exit_code, 0) << ends[0].output;
}

TEST(MpiFailure, TheJobOfARankThatExitsEndsWithItsCode) {
  RankOptions options = mpi_ranks(3);
  options.fault = exit_with(rank(0), 3).at_step(5);
  options.limit = std::chrono::seconds(20);
  const auto ends = run_ranks(options, [](Rank& r) {
    float x = 1.0f;
    for (int step = 0; step < 1000000; ++step) {
      r.step(step);
      r.world().all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kMax);
    }
  });
  EXPECT_EQ(ends[0].exit_code, 3) << ends[0].output;
}

TEST(MpiFailure, ASlowRankIsNotADeadOne) {
  RankOptions options = mpi_ranks(2);
  options.fault = delay(rank(1), std::chrono::milliseconds(3000)).at_step(0);
  options.heartbeat_timeout = std::chrono::seconds(2);
  run_ranks(options, [](Rank& r) {
    r.world().barrier();
    r.step(0);
    r.world().barrier();
  });
}

// MPI chooses the order of additions. The standard promises equal results on all ranks, and training relies on that.
TEST(Mpi, EveryRankGetsTheSameBits) {
  run_ranks(mpi_ranks(4), [](Rank& r) {
    for (const std::size_t count : {std::size_t{10}, std::size_t{1000}, std::size_t{200003}}) {
      std::vector<float> sums(count);
      std::vector<std::uint16_t> halves(count, static_cast<std::uint16_t>(0x3c00 + 37 * r.rank()));
      for (std::size_t i = 0; i < count; ++i)
        sums[i] = 1.0f / (static_cast<float>(i * 3 + 3) + 7.0f * static_cast<float>(r.rank()));
      r.world().all_reduce(sums.data(), sums.data(), count, DataType::kFloat32, ReduceOp::kAvg);
      r.world().all_reduce(halves.data(), halves.data(), count, DataType::kFloat16, ReduceOp::kSum);
      std::vector<float> all(count * 4);
      r.world().all_gather(sums.data(), all.data(), count, DataType::kFloat32);
      std::vector<std::uint16_t> all_halves(count * 4);
      r.world().all_gather(halves.data(), all_halves.data(), count, DataType::kFloat16);
      for (std::size_t i = 0; i < count * 4; ++i) {
        ASSERT_EQ(all[i], sums[i % count]);
        ASSERT_EQ(all_halves[i], halves[i % count]);
      }
    }
  });
}

// Reductions with a meaning that Reigen defines: truth values, NaN in minima and maxima, averages of 16-bit floats and
// of small integers.
TEST(Mpi, ReductionsMeanTheSameAsElsewhere) {
  for (const int ranks : {1, 3}) {
    run_ranks(mpi_ranks(ranks), [](Rank& r) {
      auto& world = r.world();
      std::vector<std::uint8_t> flags = {static_cast<std::uint8_t>(r.rank() == 0 ? 7 : 0), 0, 1};
      world.all_reduce(flags.data(), flags.data(), 3, DataType::kBool, ReduceOp::kSum);
      EXPECT_EQ(flags, (std::vector<std::uint8_t>{1, 0, 1}));
      float extreme = r.rank() == 0 ? std::nanf("") : 1.0f;
      world.all_reduce(&extreme, &extreme, 1, DataType::kFloat32, ReduceOp::kMin);
      EXPECT_NE(extreme, extreme);
      std::vector<std::uint16_t> bf16 = {0x3f80, 0x4040};  // 1 and 3
      world.all_reduce(bf16.data(), bf16.data(), 2, DataType::kBfloat16, ReduceOp::kAvg);
      EXPECT_EQ(bf16, (std::vector<std::uint16_t>{0x3f80, 0x4040}));
      auto bits = static_cast<std::int32_t>(1 << r.rank());
      world.all_reduce(&bits, &bits, 1, DataType::kInt32, ReduceOp::kBor);
      EXPECT_EQ(bits, (1 << r.size()) - 1);
      auto small = static_cast<std::int8_t>(-r.rank());
      world.all_reduce(&small, &small, 1, DataType::kInt8, ReduceOp::kAvg);
      EXPECT_EQ(small, static_cast<std::int8_t>(-r.size() * (r.size() - 1) / 2 / r.size()));
    });
  }
}

}  // namespace
}  // namespace reigen::testing
