#include "reigen/schedule/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "reigen/base/error.h"
#include "reigen/schedule/generate.h"
#include "reigen/schedule/text.h"

namespace reigen::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Span& span_of(const Replay& replay, std::size_t rank, const std::string& action) {
  const auto& spans = replay.ranks[rank];
  return *std::find_if(spans.begin(), spans.end(), [&](const Span& span) { return to_text(span.action) == action; });
}

TEST(Replay, TimesOfASmallSchedule) {
  const Replay result = replay(add_messages(gpipe({2, 2})));
  EXPECT_EQ(span_of(result, 0, "F0.1").start, 1);
  EXPECT_EQ(span_of(result, 1, "F1.0").start, 1);
  EXPECT_EQ(span_of(result, 1, "B1.0").start, 3);
  EXPECT_EQ(span_of(result, 0, "B0.0").start, 5);
  EXPECT_EQ(span_of(result, 0, "B0.1").end, 9);
  EXPECT_EQ(result.total, 9);
  EXPECT_THAT(result.idle, ElementsAre(3, 3));
  EXPECT_DOUBLE_EQ(result.bubble, 1.0 / 3);
  EXPECT_EQ(result.in_flight.by_stage, (std::vector<int>{2, 2}));
  EXPECT_EQ(result.transfers.size(), 4U);
}

TEST(Replay, EachStageHasItsTimes) {
  const Times times{.stages = {{.forward = 1, .backward = 2}, {.forward = 10, .backward = 20}}};
  const Replay result = replay(add_messages(naive({2, 1})), times);
  EXPECT_EQ(result.total, 33);
  EXPECT_THAT(result.idle, ElementsAre(30, 3));
}

TEST(Replay, MessagesTakeTheirTimeAndShareTheirLink) {
  // Rank 0 sends at 1 and at 2. The second message waits until the first has left the link at 4.
  const Times times{.stages = {{.forward = 1, .backward = 2, .transfer = 3}}, .latency = 0.5};
  const Replay result = replay(add_messages(gpipe({2, 2})), times);
  ASSERT_EQ(result.transfers.size(), 4U);
  EXPECT_EQ(result.transfers[0].start, 1);
  EXPECT_EQ(result.transfers[0].arrival, 4.5);
  EXPECT_EQ(result.transfers[1].start, 4);
  EXPECT_EQ(result.transfers[1].arrival, 7.5);
  EXPECT_EQ(span_of(result, 1, "F1.0").start, 4.5);
  EXPECT_EQ(span_of(result, 1, "F1.1").start, 7.5);
  EXPECT_EQ(span_of(result, 0, "B0.0").start, 8.5 + 2 + 3 + 0.5);
}

TEST(Replay, SkipsHaveTimesOfTheirOwn) {
  Schedule schedule = naive({3, 1});
  schedule.skips = {{0, 2}};
  const Replay result = replay(add_messages(schedule), {.skips = {100}});
  EXPECT_EQ(span_of(result, 2, "F2.0").start, 101);
  EXPECT_EQ(span_of(result, 1, "B1.0").start, 104);
  EXPECT_EQ(span_of(result, 0, "B0.0").start, 204);
}

TEST(Replay, AWaitInAReceiveHoldsUpWhatComesAfterIt) {
  // Rank 1 could do F1.0 while it waits for the message of micro-batch 1.
  const Schedule schedule = parse_schedule(
      "ranks 2\nstages 2\nmicro_batches 2\nplacement looped\n"
      "rank 0: F0.0 SEND_F0.0>1 F0.1 SEND_F0.1>1 RECV_B0.0<1 B0.0 RECV_B0.1<1 B0.1\n"
      "rank 1: RECV_F1.0<0 RECV_F1.1<0 F1.0 B1.0 SEND_B1.0>0 F1.1 B1.1 SEND_B1.1>0\n");
  EXPECT_EQ(span_of(replay(schedule), 1, "F1.0").start, 1);
  const Replay waits = replay(schedule, {.receives_wait = true});
  EXPECT_EQ(span_of(waits, 1, "F1.0").start, 2);
  EXPECT_EQ(span_of(waits, 1, "RECV_F1.1<0").start, 1);
  EXPECT_EQ(span_of(waits, 1, "RECV_F1.1<0").end, 2);
}

TEST(Replay, GatheringAndReducingTakeTimeOfTheRank) {
  const Schedule schedule = parse_schedule(
      "ranks 1\nstages 1\nmicro_batches 1\nplacement looped\nrank 0: UNSHARD0 F0.0 B0.0 RESHARD0 REDUCE_GRAD0");
  const Replay result = replay(schedule, {.stages = {{.unshard = 5, .reshard = 1, .reduce_grad = 7}}});
  EXPECT_EQ(result.total, 16);
  EXPECT_EQ(result.bubble, 0);
}

TEST(Replay, WithoutTimesThereIsNoBubble) {
  const StageTimes none{.forward = 0, .backward = 0};
  EXPECT_EQ(replay(add_messages(gpipe({2, 2})), {.stages = {none}}).bubble, 0);
}

TEST(Replay, WrongTimesAreRefused) {
  const Schedule schedule = add_messages(gpipe({3, 1}));
  const auto refused = [&](const Times& times, const std::string& text) {
    EXPECT_THAT([&] { replay(schedule, times); }, ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refused({.stages = {{}, {}}}, "times of 2 stages");
  refused({.stages = {}}, "times of 0 stages");
  refused({.skips = {1}}, "times of 1 skips");
  refused({.stages = {{.forward = -1}}}, "the time forward is wrong");
  refused({.stages = {{.transfer = std::numeric_limits<double>::infinity()}}}, "the time transfer is wrong");
  refused({.latency = std::numeric_limits<double>::quiet_NaN()}, "the time latency is wrong");
  EXPECT_THAT([&] { replay(gpipe({2, 1})); }, ThrowsMessage<InvalidArgument>(HasSubstr("call add_messages()")));
}

// The table of the research on bubbles: the part of the step's time in which a rank is idle.
TEST(BubbleFormula, KnownValues) {
  EXPECT_NEAR(bubble_formula(Name::kGpipe, {4, 4}), 0.429, 5e-4);
  EXPECT_NEAR(bubble_formula(Name::kOneFOneB, {4, 8}), 0.273, 5e-4);
  EXPECT_NEAR(bubble_formula(Name::kOneFOneB, {4, 16}), 0.158, 5e-4);
  EXPECT_NEAR(bubble_formula(Name::kGpipe, {8, 32}), 0.179, 5e-4);
  EXPECT_NEAR(bubble_formula(Name::kOneFOneB, {8, 64}), 0.099, 5e-4);
  EXPECT_DOUBLE_EQ(bubble_formula(Name::kInterleaved, {4, 8, 2}), 3.0 / 19);
  EXPECT_DOUBLE_EQ(bubble_formula(Name::kZeroBubbleH1, {4, 8}), 3.0 / 27);
  EXPECT_DOUBLE_EQ(bubble_formula(Name::kZeroBubbleV, {4, 8, 2}), 3.0 / 51);
  EXPECT_DOUBLE_EQ(bubble_formula(Name::kNaive, {4, 8}), 0.75);
  for (const Name name : names()) EXPECT_EQ(bubble_formula(name, {1, 3, virtual_stages_of(name).least}), 0);
  EXPECT_THROW(bubble_formula(Name::kGpipe, {2, 2, 2}), InvalidArgument);
}

}  // namespace
}  // namespace reigen::schedule
