// Broadcast and scatter in shared memory. A rank takes the root's data before other ranks have made the call, and
// leaves before others have taken theirs. The tests order the ranks with a common counter of steps.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "comm/contract.h"
#include "reigen/base/error.h"
#include "reigen/comm/call_list.h"

namespace reigen::testing {
namespace {

constexpr std::size_t kElements = 60000;
const comm::StartOptions kLazy{.progress = comm::Progress::kCaller};

class Steps {
 public:
  void reach(int step) { at_->store(step); }
  void await(int step) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (at_->load() < step && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_GE(at_->load(), step);
  }

 private:
  std::shared_ptr<std::atomic<int>> at_ = std::make_shared<std::atomic<int>>(0);
};

void fill(TestBuffer<float>& x, std::size_t count, int rank) {
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(rank + 5);
}

// Reads an element while a call may still write it, on this thread or on the group's. ThreadSanitizer would call it a
// race.
__attribute__((no_sanitize_thread, noinline)) float peek(const float* element) {
  return *static_cast<const volatile float*>(element);
}

}  // namespace

// Rank 2 has announced its call, but drives it only after rank 1 has completed its own.
TEST(FromRoot, WhoHasItLeaves) {
  Steps steps;
  run_ranks({.ranks = 3, .backend = "shared_memory"}, [&](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, kElements, false);
    TestBuffer<float> blocks(world, 3 * kElements, false);
    // Rank 2 starts its call and drives it only in wait(). The calls of the others block.
    const auto call_in_turn = [&](const CallList& calls, int call) {
      if (r.rank() == 2) {
        const Work work = world.start(calls, comm::Progress::kCaller);
        steps.await(call);
        return work.wait();
      }
      world.run(calls);
      if (r.rank() == 1) steps.reach(call);
    };
    fill(x, kElements, r.rank());
    CallList broadcast;
    broadcast.broadcast(x.data(), kElements, DataType::kFloat32, 0);
    call_in_turn(broadcast, 1);
    ASSERT_TRUE(elements_are(x, kElements, 5.0F));
    for (std::size_t i = 0; i < 3 * kElements; ++i) blocks[i] = static_cast<float>(i / kElements);
    const float* const input = r.rank() == 0 ? blocks.data() : nullptr;
    CallList scatter;
    scatter.scatter(input, x.data(), kElements, DataType::kFloat32, 0);
    call_in_turn(scatter, 2);
    ASSERT_TRUE(elements_are(x, kElements, static_cast<float>(r.rank())));
  });
}

// Rank 2 makes the call only after rank 1 has the data.
TEST(FromRoot, ItIsTakenBeforeAllHaveCome) {
  Steps steps;
  run_ranks({.ranks = 3, .backend = "shared_memory"}, [&](Rank& r) {
    TestBuffer<float> x(r.world(), kElements, false);
    fill(x, kElements, r.rank());
    if (r.rank() == 2) steps.await(1);
    const Work work = r.world().start_broadcast(x.data(), kElements, DataType::kFloat32, 0, kLazy);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    if (r.rank() == 1) {
      while (peek(&x[kElements - 1]) != 5.0F && std::chrono::steady_clock::now() < deadline) r.world().poll();
      EXPECT_EQ(peek(&x[kElements - 1]), 5.0F);
      EXPECT_FALSE(work.is_completed());
      steps.reach(1);
    }
    work.wait();
    ASSERT_TRUE(elements_are(x, kElements, 5.0F));
  });
}

// The two sizes take different algorithms.
TEST(FromRoot, AnAbortOfWhoHasLeftIsOfTheNextCall) {
  for (const std::size_t count : {std::size_t{100}, kElements}) {
    Steps steps;
    run_ranks({.ranks = 3, .backend = "shared_memory"}, [&](Rank& r) {
      auto& world = r.world();
      TestBuffer<float> x(world, count, false);
      fill(x, count, r.rank());
      if (r.rank() == 1) steps.await(1);
      if (r.rank() == 2) {
        const Work work = world.start_broadcast(x.data(), count, DataType::kFloat32, 0, kLazy);
        steps.reach(1);
        steps.await(2);
        EXPECT_NO_THROW(work.wait());
      } else {
        EXPECT_NO_THROW(world.broadcast(x.data(), count, DataType::kFloat32, 0)) << "rank " << r.rank();
      }
      EXPECT_TRUE(elements_are(x, count, 5.0F));
      if (r.rank() == 1) {
        world.abort("enough");
        steps.reach(2);
      } else {
        EXPECT_THROW(world.barrier(), Aborted);
      }
    });
  }
}

// Rank 1 has the data, then rank 2 makes the call. The root completes the call and aborts before rank 1 checks again.
TEST(FromRoot, AnAbortOfTheRootIsOfTheNextCallForWhoHasIt) {
  Steps steps;
  run_ranks({.ranks = 3, .backend = "shared_memory"}, [&](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, kElements, false);
    fill(x, kElements, r.rank());
    if (r.rank() > 0) steps.await(r.rank());
    const Work work = world.start_broadcast(x.data(), kElements, DataType::kFloat32, 0, kLazy);
    if (r.rank() == 0) steps.reach(1);
    if (r.rank() == 1) {
      EXPECT_TRUE(elements_are(x, kElements, 5.0F));
      steps.reach(2);
      steps.await(3);
    }
    EXPECT_NO_THROW(work.wait()) << "rank " << r.rank();
    EXPECT_TRUE(elements_are(x, kElements, 5.0F));
    if (r.rank() != 0) return;
    world.abort("enough");
    steps.reach(3);
  });
}

// Rank 1 has the data and aborts before rank 2 has made the call.
TEST(FromRoot, AnAbortOfWhoHasNotLeftIsOfThisCall) {
  Steps steps;
  run_ranks({.ranks = 3, .backend = "shared_memory"}, [&](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, kElements, false);
    fill(x, kElements, r.rank());
    steps.await(r.rank());
    if (r.rank() == 2) {
      EXPECT_THROW(world.broadcast(x.data(), kElements, DataType::kFloat32, 0), Aborted);
      return;
    }
    const Work work = world.start_broadcast(x.data(), kElements, DataType::kFloat32, 0, kLazy);
    if (r.rank() == 0) steps.reach(1);
    if (r.rank() == 1) {
      EXPECT_TRUE(elements_are(x, kElements, 5.0F));
      world.abort("enough");
      steps.reach(2);
    }
    EXPECT_THROW(work.wait(), Aborted) << "rank " << r.rank();
  });
}

// The input lies in memory that all ranks have in common. Rank 1 has its block, and aborts before rank 2 has its own.
TEST(FromRoot, InCommonMemoryAnAbortIsOfThisCallUntilAllHaveIt) {
  Steps steps;
  run_ranks({.ranks = 3, .backend = "shared_memory"}, [&](Rank& r) {
    auto& world = r.world();
    const auto memory = world.allocate_shared(3 * kElements * sizeof(float));
    const auto* const input = r.rank() == 0 ? static_cast<float*>(memory.get()) : nullptr;
    TestBuffer<float> x(world, kElements, false);
    fill(x, kElements, r.rank());
    steps.await((3 - r.rank()) % 3);  // the order of the ranks is 0, 2, 1
    const Work work = world.start_scatter(input, x.data(), kElements, DataType::kFloat32, 0, kLazy);
    if (r.rank() != 1) {
      steps.reach(r.rank() == 0 ? 1 : 2);
      steps.await(3);
    } else {
      EXPECT_TRUE(elements_are(x, kElements, 0.0F));
      world.abort("enough");
      steps.reach(3);
    }
    EXPECT_THROW(work.wait(), Aborted) << "rank " << r.rank();
  });
}

// The first call is the same on all ranks, the second is not.
TEST(FromRoot, ADifferenceIsOfTheCallThatDiffers) {
  Steps steps;
  run_ranks({.ranks = 3, .backend = "shared_memory"}, [&](Rank& r) {
    auto& world = r.world();
    TestBuffer<float> x(world, kElements, false);
    TestBuffer<float> y(world, kElements, false);
    fill(x, kElements, r.rank());
    if (r.rank() > 0) steps.await(3 - r.rank());  // the order of the ranks is 0, 2, 1
    const Work first = world.start_broadcast(x.data(), kElements, DataType::kFloat32, 0, kLazy);
    const Work second = r.rank() == 1
                            ? world.start_all_reduce(y.data(), y.data(), 10, DataType::kFloat32, ReduceOp::kSum, kLazy)
                            : world.start_barrier(kLazy);
    if (r.rank() == 0) steps.reach(1);
    if (r.rank() == 2) {
      steps.reach(2);
      steps.await(3);
    }
    EXPECT_NO_THROW(first.wait()) << "rank " << r.rank();
    EXPECT_TRUE(elements_are(x, kElements, 5.0F));
    EXPECT_THROW(second.wait(), CollectiveMismatch) << "rank " << r.rank();
    if (r.rank() == 1) steps.reach(3);
  });
}

// In memory that all ranks have in common, all results are there when the call returns. This also holds if another
// group allocated the memory.
TEST(FromRoot, InCommonMemoryAllIsThereWhenTheCallReturns) {
  for (const bool of_child : {false, true}) {
    Steps steps;
    run_ranks({.ranks = 3, .backend = "shared_memory"}, [&](Rank& r) {
      auto& world = r.world();
      auto child = world.split(0);
      ASSERT_TRUE(child.has_value());
      const auto memory = (of_child ? *child : world).allocate_shared(3 * kElements * sizeof(float));
      auto* const shared = static_cast<float*>(memory.get());
      TestBuffer<float> blocks(world, 3 * kElements, false);
      fill(blocks, 3 * kElements, 2);
      if (r.rank() != 2) steps.await(1);
      const float* const input = r.rank() == 0 ? blocks.data() : nullptr;
      float* const own = shared + static_cast<std::size_t>(r.rank()) * kElements;
      const Work work = world.start_scatter(input, own, kElements, DataType::kFloat32, 0, kLazy);
      if (r.rank() == 2) {
        steps.reach(1);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      work.wait();
      EXPECT_TRUE(elements_are(shared, 3 * kElements, 7.0F)) << "rank " << r.rank();
      world.barrier();
    });
  }
}

}  // namespace reigen::testing
