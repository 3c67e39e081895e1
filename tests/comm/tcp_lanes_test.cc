// Several calls of one group in flight over TCP, without an engine: how far each may go before the others complete.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "comm/tcp/collective.h"
#include "comm/tcp_groups.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using comm::Call;
using comm::OperationKind;
using comm::Step;
using comm::tcp::Collective;
using comm::tcp::kLanes;

Call sum_of(const float* input, float* output, std::size_t count) {
  return {.kind = OperationKind::kAllReduce,
          .input = input,
          .output = output,
          .count = count,
          .type = DataType::kFloat32,
          .op = ReduceOp::kSum};
}

// advance() must not be called again after it has returned kDone.
bool completes(Collective& call) {
  bool done = false;
  return comes_true([&] { return done = done || call.advance() == Step::kDone; });
}

TEST(TcpLanes, ACallMovesWhileTheOneBeforeItWaits) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    constexpr std::size_t kCount = 1 << 20;
    Group group(options_of(r));
    std::vector<std::vector<float>> data(kLanes, std::vector<float>(kCount, static_cast<float>(r.rank() + 1)));
    std::vector<Call> sums;
    for (auto& one : data) sums.push_back(sum_of(one.data(), one.data(), kCount));
    std::vector<std::unique_ptr<Collective>> calls;
    for (std::size_t i = 0; i < kLanes; ++i) {
      calls.push_back(std::make_unique<Collective>(group, sums[i], i));
      ASSERT_TRUE(calls.back()->try_post());
    }
    // Only the last call is driven, and none before it.
    const auto summed = [&] {
      EXPECT_NE(calls.back()->advance(), Step::kDone) << "it completes after those before it";
      return data.back().front() == 3 && data.back().back() == 3;
    };
    EXPECT_TRUE(comes_true(summed));
    EXPECT_EQ(data.front().back(), static_cast<float>(r.rank() + 1));
    for (std::size_t i = 0; i < kLanes; ++i) {
      ASSERT_TRUE(completes(*calls[i]));
      EXPECT_EQ(data[i], std::vector<float>(kCount, 3));
    }
    meet(r, "done");
  });
}

// The engine of rank 0 drives the second call while the first one waits for rank 1, which has no engine.
TEST(TcpLanes, TheEngineDrivesAllThatAreUnderWay) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    constexpr std::size_t kCount = 1 << 22;
    std::vector<std::vector<float>> data(kLanes, std::vector<float>(kCount, static_cast<float>(r.rank() + 1)));
    if (r.rank() == 0) {
      const Communicator world(options_of(r));
      std::vector<Work> works;
      for (auto& one : data) {
        works.push_back(world.start_all_reduce(one.data(), one.data(), kCount, DataType::kFloat32, ReduceOp::kSum));
      }
      for (const Work& work : works) work.wait();
      EXPECT_EQ(data.back(), std::vector<float>(kCount, 3));
      return meet(r, "done");
    }
    Group group(options_of(r));
    std::vector<Call> sums;
    for (auto& one : data) sums.push_back(sum_of(one.data(), one.data(), kCount));
    std::vector<std::unique_ptr<Collective>> calls;
    for (std::size_t i = 0; i < kLanes; ++i) {
      calls.push_back(std::make_unique<Collective>(group, sums[i], i));
      ASSERT_TRUE(calls.back()->try_post());
    }
    EXPECT_TRUE(comes_true([&] {
      EXPECT_NE(calls.back()->advance(), Step::kDone);
      return data.back().front() == 3 && data.back().back() == 3;
    }));
    for (auto& call : calls) ASSERT_TRUE(completes(*call));
    meet(r, "done");
  });
}

// Rank 1 completes the first call, then ends the group and never makes the second. The first call must complete here.
TEST(TcpLanes, AnEndAfterTheFirstCallIsNoneOfIt) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    Group group(options_of(r));
    float x = static_cast<float>(r.rank() + 1);
    float y = 0;
    const Call sum_of_x = sum_of(&x, &x, 1);
    Collective first(group, sum_of_x, 0);
    ASSERT_TRUE(first.try_post());
    if (r.rank() == 1) {
      ASSERT_TRUE(completes(first));
      group.publish_abort({.text = "because"});
      // The kernel does the same with a socket of a process that has ended with unread data.
      ::shutdown(group.streams(0, 1).front().fd(), SHUT_RDWR);
      meet(r, "ended");
      meet(r, "done");
      return;
    }
    meet(r, "ended");
    ASSERT_TRUE(comes_true([&] {
      group.control().look();
      return group.control().peer(1).cause.has_value();
    }));
    const Call sum_of_y = sum_of(&y, &y, 1);
    Collective second(group, sum_of_y, 1);
    EXPECT_TRUE(second.try_post()) << "the end is of this call";
    const auto begin = Deadline::Clock::now();
    while (Deadline::Clock::now() - begin < std::chrono::milliseconds(2500)) {
      EXPECT_NO_THROW(first.check_peers(Deadline::Clock::now() - begin)) << "its data may be on their way";
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_TRUE(completes(first));
    EXPECT_EQ(x, 3);
    EXPECT_THROW(second.advance(), Aborted);
    meet(r, "done");
  });
}

TEST(TcpLanes, SoManyCallsAreUnderWayAsThereAreLanes) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    Group group(options_of(r));
    for (std::uint64_t i = 0; i < kLanes; ++i) EXPECT_TRUE(group.in_flight().try_begin({}, i));
    EXPECT_FALSE(group.in_flight().try_begin({}, kLanes));
    group.in_flight().complete_first();
    EXPECT_TRUE(group.in_flight().try_begin({}, kLanes));
    meet(r, "done");
  });
}

// The second of two calls reads or writes memory that the first one writes, or writes memory that the first one reads.
TEST(TcpLanes, ACallThatSharesMemoryWaits) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    Group group(options_of(r));
    std::array<float, 60> x{};
    float* const a = x.data();
    std::uint64_t number = 0;
    const auto refused = [&](const Call& first, const Call& second) {
      EXPECT_TRUE(group.in_flight().try_begin(first, number));
      const bool opened = group.in_flight().try_begin(second, number + 1);
      group.in_flight().complete_first();
      EXPECT_TRUE(opened || group.in_flight().try_begin(second, number + 1)) << "the first is complete";
      group.in_flight().complete_first();
      number += 2;
      return !opened;
    };
    EXPECT_TRUE(refused(sum_of(a, a, 10), sum_of(a, a, 10)));
    EXPECT_TRUE(refused(sum_of(a, a + 10, 10), sum_of(a + 19, a + 30, 10))) << "reads the last that was written";
    EXPECT_TRUE(refused(sum_of(a, a + 10, 10), sum_of(a + 30, a + 9, 10)));
    EXPECT_TRUE(refused(sum_of(a, a + 10, 10), sum_of(a + 30, a + 5, 5))) << "writes what is read";
    EXPECT_FALSE(refused(sum_of(a, a + 10, 10), sum_of(a, a + 20, 10))) << "both read it";
    EXPECT_FALSE(refused(sum_of(a, a + 10, 10), sum_of(a + 20, a + 30, 10)));
    EXPECT_FALSE(refused(sum_of(a, a, 10), sum_of(a + 10, a + 10, 10)));
    meet(r, "done");
  });
}

// A rank that skips one call differs from the other in both calls in flight.
TEST(TcpLanes, OfTwoCallsThatDifferTheFirstIsNamed) {
  run_ranks({.ranks = 2, .backend = "tcp"}, [](Rank& r) {
    auto& world = r.world();
    float x = 0;
    float y = 0;
    float z = 0;
    try {
      const char* const tags[] = {"one", "two", "three"};
      (void)world.start_all_reduce(&x, &x, 1, DataType::kFloat32, ReduceOp::kSum, {.tag = tags[r.rank()]});
      world.all_reduce(&y, &y, 1, DataType::kFloat32, ReduceOp::kSum, {.tag = tags[r.rank() + 1]});
      ADD_FAILURE() << "the calls differ";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("\"one\""));
    }
    EXPECT_THROW(world.all_reduce(&z, &z, 1, DataType::kFloat32, ReduceOp::kSum), Error);
  });
}

}  // namespace
}  // namespace reigen::testing
