// Failures between ranks that are threads: different calls, ranks that leave, ranks that do not make a call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "harness/ranks.h"
#include "harness/sanitizer.h"
#include "reigen/base/error.h"
#include "reigen/comm/call_list.h"

namespace reigen::testing {
namespace {

using ::testing::HasSubstr;
using Call = std::function<void(Communicator&)>;

// Rank 2 calls `odd`, the others `usual`. Every rank gets the same message with these words.
void expect_mismatch(const Call& usual, const Call& odd, const std::vector<std::string>& words) {
  run_ranks({.ranks = 3}, [&](Rank& r) {
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

std::vector<float>& scratch() {
  thread_local std::vector<float> data(1000);
  return data;
}

Call all_reduce(std::size_t count, DataType type = DataType::kFloat32, ReduceOp op = ReduceOp::kSum,
                const std::string& tag = "") {
  return [=](Communicator& c) { c.all_reduce(scratch().data(), scratch().data(), count, type, op, {.tag = tag}); };
}
Call broadcast(int root) {
  return [=](Communicator& c) { c.broadcast(scratch().data(), 100, DataType::kFloat32, root); };
}

TEST(Mismatch, OfTheOperation) {
  expect_mismatch(
      all_reduce(100), broadcast(0),
      {"operation", "rank 2: broadcast(100 float32, root 0)", "rank 0: all_reduce(100 float32, sum)", "#1"});
}
TEST(Mismatch, OfTheCount) {
  expect_mismatch(all_reduce(100), all_reduce(101),
                  {"count", "all_reduce(101 float32, sum)", "all_reduce(100 float32, sum)"});
}
TEST(Mismatch, OfTheType) {
  expect_mismatch(all_reduce(100), all_reduce(100, DataType::kInt32), {"type", "int32", "float32"});
}
TEST(Mismatch, OfTheReduction) {
  expect_mismatch(all_reduce(100), all_reduce(100, DataType::kFloat32, ReduceOp::kMax), {"reduction", "max", "sum"});
}
TEST(Mismatch, OfTheRoot) { expect_mismatch(broadcast(0), broadcast(1), {"root 1", "root 0"}); }
TEST(Mismatch, OfTheTag) {
  expect_mismatch(all_reduce(100, DataType::kFloat32, ReduceOp::kSum, "step 3"),
                  all_reduce(100, DataType::kFloat32, ReduceOp::kSum, "step 4"), {"tag", "step 3", "step 4"});
}

TEST(Mismatch, OfASkippedCall) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    auto& world = r.world();
    if (r.rank() == 0) {
      const Work work = world.start_all_reduce(scratch().data(), scratch().data(), 10, DataType::kFloat32,
                                               ReduceOp::kSum, {.tag = "extra"});
      EXPECT_THROW(work.wait(), CollectiveMismatch);
      EXPECT_THROW(world.broadcast(scratch().data(), 10, DataType::kFloat32, 0), Aborted);
    } else {
      EXPECT_THROW(world.broadcast(scratch().data(), 10, DataType::kFloat32, 0), CollectiveMismatch);
    }
  });
}

TEST(Failure, ARankThatLeavesIsNamed) {
  run_ranks({.ranks = 3}, [](Rank& r) {
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
      EXPECT_THAT(error.what(), HasSubstr("rank 1"));
      EXPECT_THAT(error.what(), HasSubstr("left the group"));
      EXPECT_THAT(error.what(), HasSubstr("last words"));
    }
  });
}

// An asynchronous call that no thread waits for meets the failure. The next call throws the same error, and later calls
// throw that the group has ended.
TEST(Failure, WhatNobodyHasHeardOfIsToldAsItWas) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    auto& world = r.world();
    float x = 0;
    world.barrier();
    if (r.rank() == 1) return r.leave();
    const Work work = world.start_recv(&x, 1, DataType::kFloat32, 1);
    while (!work.is_completed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_THROW(world.barrier(), PeerLost);
    EXPECT_THROW(world.barrier(), Aborted);
    EXPECT_THROW(work.wait(), PeerLost);
  });
}

// Rank 1 waits for a short message from rank 0, or for rank 0 to receive a long one, but rank 0 has left.
TEST(Failure, ARankThatLeftIsMissedByMessages) {
  for (const std::size_t count : {std::size_t{10}, std::size_t{8} << 20}) {
    run_ranks({.ranks = 2}, [count](Rank& r) {
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

TEST(Failure, AMessageThatNobodySendsIsATimeout) {
  run_ranks({.ranks = 2, .timeout = std::chrono::milliseconds(300), .report_after = std::chrono::milliseconds(100)},
            [](Rank& r) {
              auto& world = r.world();
              float x = 0;
              world.barrier();
              if (r.rank() == 1) {
                r.store().get("over", Deadline::after(std::chrono::seconds(30)));
                EXPECT_THROW(world.barrier(), Timeout);
                return;
              }
              try {
                world.recv(&x, 1, DataType::kFloat32, 1, {.tag = "step 9"});
                ADD_FAILURE() << "returned without a message";
              } catch (const Timeout& error) {
                EXPECT_THAT(error.what(), HasSubstr("message #0 from rank 1 (1 float32 \"step 9\")"));
              }
              r.store().set("over", "1");
            });
}

TEST(Failure, LeavingAfterTheLastCallDisturbsNobody) {
  for (int round = 0; round < 50; ++round) {
    run_ranks({.ranks = 4}, [](Rank& r) {
      std::vector<float> x(5000, 1.0f);
      r.world().all_reduce(x.data(), x.data(), x.size(), DataType::kFloat32, ReduceOp::kSum);
      EXPECT_EQ(x[0], 4.0f);
      r.leave();
    });
  }
}

TEST(Failure, ALiveRankThatDoesNotComeIsATimeout) {
  run_ranks({.ranks = 3, .timeout = std::chrono::milliseconds(300), .report_after = std::chrono::milliseconds(100)},
            [](Rank& r) {
              auto& world = r.world();
              world.barrier();
              if (r.rank() == 2) {
                r.store().get("over", Deadline::after(std::chrono::seconds(30)));
                EXPECT_THROW(world.barrier({.tag = "step 9"}), Timeout);
                return;
              }
              try {
                world.barrier({.tag = "step 9"});
                ADD_FAILURE() << "returned without rank 2";
              } catch (const Timeout& error) {
                EXPECT_THAT(error.what(), HasSubstr("step 9"));
                EXPECT_THAT(error.what(), HasSubstr("rank 2"));
              }
              r.store().set("over", "1");
            });
}

TEST(Failure, TheProgressThreadLosesItsPatienceToo) {
  run_ranks({.ranks = 2, .timeout = std::chrono::milliseconds(1500)}, [](Rank& r) {
    auto& world = r.world();
    world.barrier();
    if (r.rank() == 1) {
      r.store().get("over", Deadline::after(std::chrono::seconds(30)));
      return;
    }
    std::vector<float> x(100);
    const comm::StartOptions options{};
    const Work work = world.start_all_reduce(x.data(), x.data(), 100, DataType::kFloat32, ReduceOp::kSum, options);
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (!work.is_completed() && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_THROW(work.wait(), Timeout);
    r.store().set("over", "1");
  });
}

TEST(Failure, WhoOnlyPollsSeesALostRankToo) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    auto& world = r.world();
    world.barrier();
    if (r.rank() == 1) {
      r.leave();
      return;
    }
    std::vector<float> x(100);
    const comm::StartOptions options{.progress = comm::Progress::kCaller};
    const Work work = world.start_all_reduce(x.data(), x.data(), 100, DataType::kFloat32, ReduceOp::kSum, options);
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (!work.is_completed() && !deadline.expired()) {
      world.poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_THROW(work.wait(), PeerLost);
  });
}

// The progress thread copies from and to a buffer. The owner frees this buffer as soon as its call has failed.
TEST(Failure, AbortWaitsForTheThreadThatDrives) {
  for (int round = 0; round < 20; ++round) {
    run_ranks({.ranks = 2}, [](Rank& r) {
      auto& world = r.world();
      auto x = std::make_unique<std::vector<float>>(3000000, 1.0f);
      const comm::StartOptions options{};
      try {  // rank 1 may know of the abort before it makes the call
        const Work work =
            world.start_all_reduce(x->data(), x->data(), x->size(), DataType::kFloat32, ReduceOp::kSum, options);
        if (r.rank() == 0) world.abort("changed its mind");
        work.wait();
      } catch (const Error&) {
      }
      x.reset();
    });
  }
}

TEST(Failure, ACallersDeadlineLeavesTheGroupAlive) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    auto& world = r.world();
    float x = 1.0f;
    if (r.rank() == 0) {
      const Work work = world.start_all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kSum);
      EXPECT_THROW(work.wait(Deadline::after(std::chrono::milliseconds(20))), Timeout);
      r.store().set("tried", "1");
      work.wait();
    } else {
      r.store().get("tried", Deadline::after(std::chrono::seconds(30)));
      world.all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kSum);
    }
    EXPECT_EQ(x, 2.0f);
    world.barrier();
  });
}

TEST(Failure, AListOfCallsAfterTheEndIsRefused) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    auto& world = r.world();
    world.barrier();
    meet(r, "left the barrier");
    world.abort("enough");
    CallList calls;
    calls.all_reduce(scratch().data(), scratch().data(), 10, DataType::kFloat32, ReduceOp::kSum);
    calls.barrier();
    EXPECT_THROW(world.run(calls), Aborted);
    EXPECT_THROW((void)world.start(calls), Aborted);
  });
}

TEST(Failure, AnAbortReachesRanksThatOnlyExchangeShortMessages) {
  run_ranks({.ranks = 3}, [](Rank& r) {
    auto& world = r.world();
    world.barrier();
    meet(r, "left the barrier");
    if (r.rank() == 2) return world.abort("enough");
    const auto end = Deadline::after(std::chrono::seconds(20));
    int x = 0;
    const auto exchange = [&] {
      while (!end.expired()) {
        const bool sends = r.rank() == 0;
        if (sends) world.send(&x, 1, DataType::kInt32, 1);
        world.recv(&x, 1, DataType::kInt32, 1 - r.rank());
        if (!sends) world.send(&x, 1, DataType::kInt32, 0);
      }
    };
    EXPECT_THROW(exchange(), Aborted);
  });
}

// One round is not enough: on a busy machine the progress threads may complete the call before its caller runs again.
TEST(Failure, AnAsynchronousCallThatComesLastReturnsBeforeItIsDone) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    auto& world = r.world();
    constexpr std::size_t kCount = kSanitized ? 1 << 19 : 4 << 20;  // the call takes much longer than its return
    constexpr int kRounds = 20;
    std::vector<float> data(kCount, 1.0f);
    int returned_before = 0;
    for (int round = 0; round < kRounds; ++round) {
      const std::string posted = fmt::format("posted/{}", round);
      world.barrier();
      if (r.rank() == 1) r.store().get(posted, Deadline::after(std::chrono::seconds(20)));
      const Work work = world.start_all_reduce(data.data(), data.data(), kCount, DataType::kFloat32, ReduceOp::kMax);
      if (!work.is_completed()) ++returned_before;
      if (r.rank() == 0) r.store().set(posted, "1");
      work.wait();
    }
    EXPECT_GT(returned_before, 0);
    EXPECT_EQ(data[kCount - 1], 1.0f);
  });
}

TEST(Failure, ALateRankHearsThatTheOthersHaveGivenUp) {
  const auto store = store::make_memory_store();
  for (const int rank : {0, 1}) {
    comm::GroupOptions options{.rank = rank, .size = 2, .store = store};
    options.join_timeout = std::chrono::milliseconds(200);
    try {
      Communicator group(options);
      FAIL() << "a group of two with one rank at a time";
    } catch (const Timeout& error) {
      EXPECT_THAT(error.what(), HasSubstr("missing: 1")) << rank;
    }
  }
}

TEST(Failure, AGroupThatNeverCompletesNamesWhoIsMissing) {
  comm::GroupOptions options{.rank = 1, .size = 4, .store = store::make_memory_store()};
  options.join_timeout = std::chrono::milliseconds(50);
  try {
    Communicator group(options);
    FAIL() << "a group of four with one rank";
  } catch (const Timeout& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing: 0, 2, 3"));
  }
}

TEST(Failure, RanksThatCountDifferentlyAreRefusedAtOnce) {
  const auto store = store::make_memory_store();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&store, rank] {
      try {
        Communicator group({.rank = rank, .size = rank == 2 ? 4 : 3, .store = store});
        ADD_FAILURE() << "rank " << rank << " is in a group of three and four";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr("differ in the size of group \"world\""));
        EXPECT_THAT(error.what(), HasSubstr("WORLD_SIZE"));
      }
    });
  }
  for (auto& rank : ranks) rank.join();
}

TEST(Failure, ARankOfAnotherVersionIsRefusedAtOnce) {
  const auto store = store::make_memory_store();
  store->set("group/world/rank/1", "1 host 1 1 1 1 1 1 1");
  store->set("group/world/machines/probe/1", "0 2 1 1 1 1 1 host\n");
  for (const char* backend : {"shared_memory", "auto"}) {
    try {
      Communicator group({.rank = 0, .size = 2, .store = store, .backend = backend});
      FAIL() << "a group with a rank of another version";
    } catch (const BackendError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kJobMismatch);
      EXPECT_THAT(error.what(), HasSubstr("rank 1 runs another version"));
    }
  }
}

TEST(Failure, OneNameCannotBeJoinedTwice) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    r.world().barrier();
    EXPECT_THROW(r.make_group("world"), InvalidArgument);
  });
}

TEST(Failure, BadGroupOptions) {
  EXPECT_THROW(Communicator({.rank = 0, .size = 0}), InvalidArgument);
  EXPECT_THROW(Communicator({.rank = 2, .size = 2, .store = store::make_memory_store()}), InvalidArgument);
  EXPECT_THROW(Communicator({.rank = 0, .size = 2}), InvalidArgument);
  EXPECT_THROW(Communicator({.rank = 0, .size = 1, .backend = "carrier pigeon"}), InvalidArgument);
}

}  // namespace
}  // namespace reigen::testing
