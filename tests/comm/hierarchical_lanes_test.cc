// Several calls of one hierarchical group in flight.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/hierarchical/hierarchical_backend.h"
#include "comm/tcp_groups.h"
#include "harness/elements.h"
#include "harness/sanitizer.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using comm::Call;
using comm::Operation;
using comm::OperationKind;
using comm::Step;

Call sum_of(std::vector<float>& data) {
  return {.kind = OperationKind::kAllReduce,
          .input = data.data(),
          .output = data.data(),
          .count = data.size(),
          .type = DataType::kFloat32,
          .op = ReduceOp::kSum};
}

// Drives operations of a backend by hand.
class ByHand {
 public:
  explicit ByHand(Rank& r) {
    comm::GroupOptions options = options_of(r);
    options.backend = "hierarchical";
    options.machine_id = std::to_string(r.rank() % 2);
    backend_ = comm::hierarchical::make_backend(options);
  }
  ~ByHand() { backend_->leave(); }
  Operation& start(const Call& call) {
    operations_.push_back(backend_->start(call, operations_.size()));
    return *operations_.back();
  }
  comm::Backend& backend() { return *backend_; }
  static bool completes(Operation& operation) {
    bool done = false;
    return comes_true([&] { return done = done || operation.advance() == Step::kDone; });
  }

 private:
  std::unique_ptr<comm::Backend> backend_;
  std::vector<std::unique_ptr<Operation>> operations_;
};

// Without an engine. Each of two machines has one rank. Rank 0 drives the first call until it waits for rank 1, then
// rank 1 does the same, and from then on both drive only the second call. The kernel's buffers do not hold the first.
TEST(HierarchicalLanes, ACallMovesWhileTheOneBeforeItWaits) {
  run_ranks({.ranks = 2}, [](Rank& r) {
    constexpr std::size_t kCount = std::size_t{12} << 20;
    ByHand hand(r);
    std::vector<float> long_data(kCount, static_cast<float>(r.rank() + 1));
    std::vector<float> data(1000, static_cast<float>(r.rank() + 1));
    const Call calls[] = {sum_of(long_data), sum_of(data), sum_of(data)};
    std::vector<Operation*> operations;
    for (const Call& call : calls) operations.push_back(&hand.start(call));
    ASSERT_TRUE(operations[0]->try_post());
    ASSERT_TRUE(operations[1]->try_post());
    EXPECT_FALSE(operations[2]->try_post()) << "both lanes are taken";
    if (r.rank() == 1) r.store().get("rank 0 waits", Deadline::after(std::chrono::seconds(20)));
    while (operations[0]->advance() == Step::kMoved) {
    }
    if (r.rank() == 0) r.store().set("rank 0 waits", "");
    EXPECT_TRUE(comes_true([&] {
      EXPECT_NE(operations[1]->advance(), Step::kDone) << "it completes after the one before it";
      return data.front() == 3 && data.back() == 3;
    }));
    EXPECT_EQ(long_data.back(), static_cast<float>(r.rank() + 1));
    for (std::size_t i = 0; i < 3; ++i) {
      if (i == 2) {
        ASSERT_TRUE(operations[i]->try_post());
      }
      ASSERT_TRUE(ByHand::completes(*operations[i]));
    }
    EXPECT_EQ(long_data, std::vector<float>(kCount, 3));
    EXPECT_EQ(data, std::vector<float>(1000, 6));
    meet(r, "done");
  });
}

// Both lanes are always taken. Every call has numbers of its own, so data of another call would show.
TEST(HierarchicalLanes, ManyCallsInFlightGiveWhatOneAtATimeGives) {
  run_ranks({.ranks = 5, .backend = "hierarchical", .machines = 2}, [](Rank& r) {
    const Communicator& world = r.world();
    constexpr std::size_t kCounts[] = {1, 5000, 100'003, 7, 20'000};
    const auto p = static_cast<std::size_t>(r.size());
    for (int round = 0; round < rounds(10); ++round) {
      struct Data {
        float number = 0;
        std::vector<float> sum, root, own, gathered, left, arrived;
        std::vector<Work> works;
      };
      std::vector<Data> all;
      for (const std::size_t count : kCounts) {
        Data d;
        d.number = static_cast<float>(100 * round + 10 * static_cast<int>(all.size()));
        const float mine = d.number + static_cast<float>(r.rank());
        d.sum = d.own = std::vector<float>(count, mine);
        d.root = std::vector<float>(count, r.rank() == 1 ? mine : 0);
        d.left = std::vector<float>(count * p, mine);
        d.gathered = d.arrived = std::vector<float>(count * p);
        all.push_back(std::move(d));
      }
      for (Data& d : all) {
        d.works.push_back(
            world.start_all_reduce(d.sum.data(), d.sum.data(), d.sum.size(), DataType::kFloat32, ReduceOp::kSum));
        d.works.push_back(world.start_broadcast(d.root.data(), d.root.size(), DataType::kFloat32, 1));
        d.works.push_back(world.start_all_to_all(d.left.data(), d.arrived.data(), d.own.size(), DataType::kFloat32));
        d.works.push_back(world.start_barrier());
        d.works.push_back(world.start_all_gather(d.own.data(), d.gathered.data(), d.own.size(), DataType::kFloat32));
      }
      for (const Data& d : all) {
        for (const Work& work : d.works) work.wait();
        ASSERT_EQ(d.sum, std::vector<float>(d.sum.size(), 5 * d.number + 10));
        ASSERT_EQ(d.root, std::vector<float>(d.root.size(), d.number + 1));
        ASSERT_EQ(d.gathered, d.arrived);
        const auto expected = [&](std::size_t i) { return d.number + static_cast<float>(i / d.own.size()); };
        ASSERT_TRUE(elements_are(d.gathered, d.gathered.size(), expected));
      }
    }
  });
}

// Rank 3 completes both calls and then ends the group. Rank 0 hears of the end before it completes the first call; the
// data of both calls are there.
TEST(HierarchicalLanes, AnEndAfterTwoCallsIsNoneOfThem) {
  run_ranks({.ranks = 4}, [](Rank& r) {
    ByHand hand(r);
    std::vector<float> first(5000, 1);
    std::vector<float> second(5000, 1);
    const Call calls[] = {sum_of(first), sum_of(second)};
    Operation& one = hand.start(calls[0]);
    Operation& two = hand.start(calls[1]);
    ASSERT_TRUE(one.try_post());
    ASSERT_TRUE(two.try_post());
    const std::vector<float> sum(5000, 4);
    if (r.rank() == 0) {
      // An operation with all its data has still to be advanced once to be complete.
      EXPECT_TRUE(comes_true([&] {
        if (first != sum) one.advance();
        if (second != sum) two.advance();
        return first == sum && second == sum;
      }));
    } else {
      EXPECT_TRUE(ByHand::completes(one));
      EXPECT_TRUE(ByHand::completes(two));
    }
    meet(r, "summed");
    if (r.rank() == 3) hand.backend().publish_abort({comm::AbortCause::Kind::kAborted, 3, "because"});
    meet(r, "ended");
    if (r.rank() == 0) {
      EXPECT_THROW(hand.backend().throw_if_ended(), Aborted);
      EXPECT_TRUE(ByHand::completes(one));
      EXPECT_TRUE(ByHand::completes(two));
    }
    meet(r, "done");
  });
}

// Ranks 0 and 2, on one machine, make different second calls and find this out while the first call waits for the other
// machine. Nobody may be told before the first call is complete.
TEST(HierarchicalLanes, ADifferenceOfTheSecondCallIsNoneOfTheFirst) {
  run_ranks({.ranks = 4}, [](Rank& r) {
    ByHand hand(r);
    std::vector<float> first(5000, 1);
    std::vector<float> second(r.rank() == 2 ? 10 : 20, 1);
    const Call calls[] = {sum_of(first), sum_of(second)};
    Operation& one = hand.start(calls[0]);
    Operation& two = hand.start(calls[1]);
    ASSERT_TRUE(one.try_post());
    ASSERT_TRUE(two.try_post());
    if (r.rank() % 2 == 0) {
      const Deadline until = Deadline::after(std::chrono::milliseconds(400));
      while (!until.expired()) {
        one.advance();
        two.advance();
        ASSERT_NO_THROW(hand.backend().check_peers(one, std::chrono::nanoseconds(0)));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      r.store().add("found", 1);
    } else {
      EXPECT_TRUE(comes_true([&] { return r.store().try_get("found") == "2"; }));
    }
    EXPECT_TRUE(ByHand::completes(one));
    EXPECT_EQ(first, std::vector<float>(5000, 4));
    const auto look = [&] {
      two.advance();
      hand.backend().check_peers(two, std::chrono::seconds(1));
    };
    const Deadline until = Deadline::after(std::chrono::seconds(20));
    try {
      while (!until.expired()) look();
      ADD_FAILURE() << "the counts differ";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("#1"));
    }
    meet(r, "done");
  });
}

}  // namespace
}  // namespace reigen::testing
