// The data that communicators write to the flight record: groups, kinds of operations, how operations end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "comm/flight_log.h"
#include "flight/read.h"
#include "flight/recorder.h"
#include "flight/summary.h"
#include "reigen/base/error.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm {
namespace {

using Recorders = std::vector<std::shared_ptr<flight::Recorder>>;

// Runs two ranks as threads. The test keeps the recorder of each.
template <typename Body>
Recorders record(Body body) {
  const auto store = store::make_memory_store();
  const Recorders recorders = {open_recorder(0, 2), open_recorder(1, 2)};
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      GroupOptions options{.rank = r, .size = 2, .store = store};
      options.recorder = recorders[static_cast<std::size_t>(r)];
      Communicator world(options);
      body(world);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return recorders;
}

std::vector<std::string> calls_in(const flight::Recorder& recorder) {
  std::vector<std::string> calls;
  for (const flight::ReadOperation& o : flight::read_record(recorder.record()).operations) {
    calls.push_back(o.group + " " + flight::describe(o));
    EXPECT_EQ(o.outcome, flight::Outcome::kDone) << calls.back();
    EXPECT_GE(o.started, o.called);
    EXPECT_GE(o.ended, o.called);
  }
  return calls;
}

TEST(FlightLog, GroupsOfARankShareItsRecord) {
  const Recorders recorders = record([](Communicator& world) {
    std::array<float, 4> data{};
    world.all_reduce(data.data(), data.data(), 4, DataType::kFloat32, ReduceOp::kMax, {.tag = "step 3"});
    world.broadcast(data.data(), 2, DataType::kInt16, 1);
    auto half = world.split(0);
    auto work = half->start_barrier();
    work.wait();
  });
  for (const auto& recorder : recorders) {
    std::vector<std::string> calls = calls_in(*recorder);
    // The first call of a split exchanges the wishes of the ranks. Rounds of the group follow, in which the new group
    // forms.
    const auto is_round = [](const std::string& call) {
      return call.starts_with("world all_gather") && call.ends_with("split\"") &&
             call.find("int64") == std::string::npos;
    };
    EXPECT_GT(std::erase_if(calls, is_round), 0U);
    EXPECT_THAT(
        calls, ::testing::ElementsAre("world all_reduce(4 float32, max) \"step 3\"", "world broadcast(2 int16, root 1)",
                                      "world all_gather(2 int64) \"split\"", "world/0.0 barrier"));
  }
  const flight::ReadRank rank = flight::read_record(recorders[1]->record());
  ASSERT_EQ(rank.groups.size(), 2U);
  EXPECT_EQ(rank.groups[1].name, "world/0.0");
  EXPECT_EQ(rank.groups[1].rank, 1);
}

TEST(FlightLog, ADifferenceIsRecordedOnBothRanks) {
  const Recorders recorders = record([](Communicator& world) {
    world.barrier();
    std::array<float, 4> data{};
    const auto count = static_cast<std::size_t>(2 + world.rank());
    EXPECT_THROW(world.all_reduce(data.data(), data.data(), count, DataType::kFloat32, ReduceOp::kSum),
                 CollectiveMismatch);
  });
  const std::vector<flight::ReadRank> ranks = {flight::read_record(recorders[0]->record()),
                                               flight::read_record(recorders[1]->record())};
  for (const flight::ReadRank& rank : ranks) {
    ASSERT_EQ(rank.operations.size(), 2U);
    EXPECT_EQ(rank.operations[0].outcome, flight::Outcome::kDone);
    EXPECT_EQ(rank.operations[1].outcome, flight::Outcome::kMismatch);
  }
  const std::string text = flight::summary(ranks, flight::time_now(), 25);
  EXPECT_THAT(text, ::testing::HasSubstr("all completed #0 barrier"));
  EXPECT_THAT(text, ::testing::HasSubstr("rank 0  all_reduce(2 float32, sum)  failed after"));
  EXPECT_THAT(text, ::testing::HasSubstr("rank 1  all_reduce(3 float32, sum)  failed after"));
}

TEST(FlightLog, AGroupOfOneRecordsToo) {
  GroupOptions options;
  options.recorder = open_recorder(0, 1);
  Communicator alone(options);
  float one = 1;
  alone.all_reduce(&one, &one, 1, DataType::kFloat32, ReduceOp::kSum);
  alone.barrier();
  const flight::ReadRank rank = flight::read_record(options.recorder->record());
  ASSERT_EQ(rank.operations.size(), 2U);
  EXPECT_EQ(rank.operations[1].sequence, 1U);
  EXPECT_EQ(rank.operations[1].outcome, flight::Outcome::kDone);
}

}  // namespace
}  // namespace reigen::comm
