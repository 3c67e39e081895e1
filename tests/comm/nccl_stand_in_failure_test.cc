// Failures between ranks of the NCCL backend, over the stand-in. Kernels that wait for a missing rank are ended, and
// the error names the rank.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "comm/contract.h"
#include "fakes/nccl/stand_in.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

RankOptions ranks_that_fail(int count) {
  return {.ranks = count, .backend = "nccl", .prepare = &stand_in::use_device_of};
}

void wait_for(Rank& r, const std::string& key) { r.store().get(key, Deadline::after(seconds(30))); }

// The last of three ranks makes another call. The kernels stall, and the ranks exchange their last calls through the
// store.
TEST(NcclStandInFailure, CallsThatDifferAndStallAreNamed) {
  run_ranks(ranks_that_fail(3), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1000, false);
    world.barrier();
    try {
      if (r.rank() < 2) world.all_reduce(x.data(), x.data(), 1000, DataType::kFloat32, ReduceOp::kSum);
      if (r.rank() == 2) world.broadcast(x.data(), 1000, DataType::kFloat32, 0);
      ADD_FAILURE() << "not noticed";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 2: broadcast(1000 float32, root 0)"));
      EXPECT_THAT(error.what(), HasSubstr("rank 0: all_reduce(1000 float32, sum)"));
    }
    EXPECT_THROW(world.barrier(), Aborted);
  });
}

TEST(NcclStandInFailure, ARankThatLeavesIsNamed) {
  run_ranks(ranks_that_fail(3), [](Rank& r) {
    const comm::CallOptions on_device{.after = {r.world().device()}};
    r.world().barrier(on_device);
    if (r.rank() == 1) return r.leave();
    try {
      r.world().barrier(on_device);
      ADD_FAILURE() << "a barrier without rank 1 returned";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_THAT(error.what(), HasSubstr("left the group"));
    }
  });
}

// Rank 1 waits for a short message from rank 0, or for rank 0 to receive a long one, but rank 0 has left. The message
// that rank 0 sent before arrives.
TEST(NcclStandInFailure, ARankThatLeftIsMissedByMessages) {
  for (const std::size_t count : {std::size_t{10}, std::size_t{1} << 20}) {
    run_ranks(ranks_that_fail(2), [count](Rank& r) {
      auto& world = r.world();
      TestBuffer<float> data(world, count, false);
      world.barrier();
      if (r.rank() == 0) {
        world.send(data.data(), 3, DataType::kFloat32, 1);
        return r.leave();
      }
      world.recv(data.data(), 3, DataType::kFloat32, 0);
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

TEST(NcclStandInFailure, AShortMessageOfARankThatLeavesAtOnceArrives) {
  run_ranks(ranks_that_fail(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1, false);
    x.fill(7);
    world.barrier();
    if (r.rank() == 0) {
      world.send(x.data(), 1, DataType::kFloat32, 1);
      return r.leave();
    }
    std::this_thread::sleep_for(milliseconds(300));  // rank 0's leaving waits for the recv
    x.fill(0);
    world.recv(x.data(), 1, DataType::kFloat32, 0);
    EXPECT_EQ(x[0], 7);
  });
}

TEST(NcclStandInFailure, AMessageThatNobodySendsIsATimeout) {
  RankOptions options = ranks_that_fail(2);
  options.timeout = milliseconds(300);
  options.report_after = milliseconds(100);
  run_ranks(options, [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1, false);
    world.barrier();
    if (r.rank() == 1) {
      wait_for(r, "over");
      EXPECT_THROW(world.barrier(), Timeout);
      return;
    }
    try {
      world.recv(x.data(), 1, DataType::kFloat32, 1, {.tag = "step 9"});
      ADD_FAILURE() << "returned without a message";
    } catch (const Timeout& error) {
      EXPECT_THAT(error.what(), HasSubstr("message #0 from rank 1 (1 float32 \"step 9\")"));
    }
    r.store().set("over", "1");
  });
}

// The message is on an open lane, or is the first one between the ranks.
TEST(NcclStandInFailure, AnAbortEndsWhatWaitsForAMessage) {
  for (const bool open : {false, true}) {
    run_ranks(ranks_that_fail(2), [open](Rank& r) {
      auto& world = r.world();
      auto data = std::make_unique<TestBuffer<float>>(world, 100000, false);
      if (open && r.rank() == 0) world.send(data->data(), 100000, DataType::kFloat32, 1);
      if (open && r.rank() == 1) world.recv(data->data(), 100000, DataType::kFloat32, 0);
      world.barrier();
      meet(r, "left the barrier");
      if (r.rank() == 0) {
        const Work work = world.start_send(data->data(), 100000, DataType::kFloat32, 1);
        std::this_thread::sleep_for(milliseconds(20));
        world.abort("the disk burns");
        data.reset();  // no kernel uses the memory any more
        EXPECT_THROW(work.wait(), Aborted);
        r.store().set("over", "1");
      } else {
        wait_for(r, "over");
        try {
          world.recv(data->data(), 100000, DataType::kFloat32, 0);
          ADD_FAILURE() << "a message of a rank that has aborted";
        } catch (const Aborted& error) {
          EXPECT_THAT(error.what(), HasSubstr("the disk burns"));
        }
      }
    });
  }
}

// A collective and messages in both directions wait on the device. Ending one must not wait for the end of another.
TEST(NcclStandInFailure, AnAbortEndsAllThatWaits) {
  run_ranks(ranks_that_fail(3), [](Rank& r) {
    auto& world = r.world();
    constexpr std::size_t kCount = 50000;
    std::vector<std::unique_ptr<TestBuffer<float>>> data;
    for (int i = 0; i < 5; ++i) data.push_back(std::make_unique<TestBuffer<float>>(world, kCount, false));
    const comm::StartOptions async{};
    std::vector<Work> works;
    const auto call = [&](int round) {
      works.clear();
      for (int step : {1, 2}) {
        const auto at = static_cast<std::size_t>(step);
        const int other = (r.rank() + step) % 3;
        works.push_back(world.start_send(data[at]->data(), kCount, DataType::kFloat32, other, async));
        works.push_back(world.start_recv(data[at + 2]->data(), kCount, DataType::kFloat32, other, async));
      }
      if (round == 0 || r.rank() == 0) {
        works.push_back(world.start_all_reduce(data[0]->data(), data[0]->data(), kCount, DataType::kFloat32,
                                               ReduceOp::kSum, {.factor = 2}));
      }
    };
    call(0);
    for (const Work& work : works) work.wait();
    world.barrier();
    meet(r, "left the barrier");
    if (r.rank() == 0) {
      call(1);
      std::this_thread::sleep_for(milliseconds(50));
      world.abort("the disk burns");
      data.clear();
      for (const Work& work : works) EXPECT_THROW(work.wait(), Aborted);
      r.store().set("aborted", "1");
    } else {
      wait_for(r, "aborted");
      EXPECT_THROW(world.all_reduce(data[0]->data(), data[0]->data(), kCount, DataType::kFloat32, ReduceOp::kSum),
                   Aborted);
    }
  });
}

// Work of another group on the device ends only with that group. An abort waits for it a moment, not for ever.
TEST(NcclStandInFailure, AnAbortBesideAnotherGroupThatWaitsReturns) {
  run_ranks(ranks_that_fail(2), [](Rank& r) {
    auto& world = r.world();
    Communicator other = r.make_group("other");
    other.barrier();
    world.barrier();
    meet(r, "left the barrier");
    if (r.rank() == 0) {
      const Work work = other.start_barrier();
      std::this_thread::sleep_for(milliseconds(50));
      world.abort("the disk burns");
      r.store().set("aborted", "1");
      work.wait();
    } else {
      wait_for(r, "aborted");
      other.barrier();
    }
    EXPECT_THROW(world.barrier(), Aborted);
  });
}

TEST(NcclStandInFailure, AnAbortEndsACollectiveThatWaits) {
  run_ranks(ranks_that_fail(3), [](Rank& r) {
    auto& world = r.world();
    auto data = std::make_unique<TestBuffer<float>>(world, 100000, false);
    world.barrier();
    meet(r, "left the barrier");
    if (r.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(20));
      world.abort("the disk burns");
    }
    const comm::CallOptions factor{.factor = 2};
    EXPECT_THROW(world.all_reduce(data->data(), data->data(), 100000, DataType::kFloat32, ReduceOp::kSum, factor),
                 Aborted);
    data.reset();
    EXPECT_THROW(world.barrier(), Aborted);
  });
}

// A long send has a shorter recv. The recv detects this, and the sender gets the same error.
TEST(NcclStandInFailure, ALongMessageOfAnotherSizeIsAMismatchOnBothEnds) {
  run_ranks(ranks_that_fail(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> data(world, 5000, false);
    try {
      if (r.rank() == 0) world.send(data.data(), 5000, DataType::kFloat32, 1);
      if (r.rank() == 1) world.recv(data.data(), 4, DataType::kFloat32, 0);
      ADD_FAILURE() << "not noticed";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), HasSubstr("send(5000 float32)"));
      EXPECT_THAT(error.what(), HasSubstr("recv(4 float32)"));
    }
  });
}

// NCCL connects neither a new group nor a new lane. The objects that were made for them are freed.
TEST(NcclStandInFailure, RanksThatNcclDoesNotConnectAreATimeout) {
  RankOptions options = ranks_that_fail(2);
  options.timeout = milliseconds(300);
  run_ranks(options, [](Rank& r) {
    auto& world = r.world();
    world.barrier();
    stand_in::connect(false);
    try {
      const Communicator group({.rank = r.rank(),
                                .size = 2,
                                .store = std::shared_ptr<store::Store>(&r.store(), [](auto*) {}),
                                .name = "late",
                                .backend = "nccl",
                                .join_timeout = milliseconds(500)});
      ADD_FAILURE() << "connected";
    } catch (const Timeout& error) {
      EXPECT_THAT(error.what(), HasSubstr("NCCL did not connect the ranks of group \"late.cuda\""));
    }
    TestBuffer<float> x(world, 1, false);
    if (r.rank() == 0) {
      world.send(x.data(), 1, DataType::kFloat32, 1);  // this rank cannot know that the message will not arrive
      r.store().set("sent", "1");
    }
    wait_for(r, "sent");
    EXPECT_THROW(world.recv(x.data(), 1, DataType::kFloat32, 1 - r.rank()), Timeout);
  });
  stand_in::connect(true);
}

// NCCL connects no rank, and on rank 1 it says so. All ranks end with the error of rank 1 long before join_timeout.
TEST(NcclStandInFailure, AnErrorWhileNcclConnectsEndsAllRanks) {
  stand_in::connect(false);
  stand_in::fail_to_connect(1);
  run_ranks(ranks_that_fail(3), [](Rank& r) {
    const auto begin = std::chrono::steady_clock::now();
    try {
      r.world();
      ADD_FAILURE() << "connected";
    } catch (const BackendError& error) {
      EXPECT_THAT(error.what(), HasSubstr("ncclCommInitRankConfig"));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
  });
  stand_in::fail_to_connect(-1);
  stand_in::connect(true);
}

TEST(NcclStandInFailure, LeavingWithAMessageThatNobodyTakesEnds) {
  run_ranks(ranks_that_fail(2), [](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, 1, false);
    world.barrier();
    meet(r, "left the barrier");
    if (r.rank() == 0) world.send(x.data(), 1, DataType::kFloat32, 1);
    r.leave();
  });
}

TEST(NcclStandInFailure, LeavingAfterTheLastCallDisturbsNobody) {
  for (int round = 0; round < 20; ++round) {
    run_ranks(ranks_that_fail(4), [](Rank& r) {
      TestBuffer<float> x(r.world(), 5000, false);
      x.fill(1);
      const int next = (r.rank() + 1) % 4;
      const int previous = (r.rank() + 3) % 4;
      r.world().send(x.data(), 10, DataType::kFloat32, next);
      r.world().recv(x.data(), 10, DataType::kFloat32, previous);
      r.world().all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum);
      EXPECT_EQ(x[0], 4.0F);
    });
  }
}

}  // namespace
}  // namespace reigen::testing
