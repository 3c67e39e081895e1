#include "reigen/schedule/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <vector>

#include "harness/sanitizer.h"
#include "reigen/base/error.h"
#include "reigen/schedule/replay.h"
#include "reigen/schedule/validate.h"
#include "schedule/executor.h"

namespace reigen::schedule {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The most activations in flight on a rank, as generate.h says. `is_exact` is false where it is only a bound.
int most_in_flight(Name name, const Size& size, int rank, bool& is_exact) {
  const int p = size.ranks;
  const int m = size.micro_batches;
  const int v = size.virtual_stages;
  is_exact = true;
  switch (name) {
    case Name::kNaive: return v;
    case Name::kGpipe: return m;
    case Name::kOneFOneB: return std::min(m, p - rank);
    case Name::kInterleaved:
      if (v == 1) return std::min(m, p - rank);
      is_exact = m % p == 0;
      return std::min(v * m, (v - 1) * p + 2 * (p - 1 - rank) + 1);
    case Name::kLoopedBreadthFirst: return v * m;
    case Name::kZeroBubbleH1: is_exact = rank == 0; return std::min(m, p);
    case Name::kZeroBubbleV: is_exact = m >= 2 * p - 1; return std::min(2 * m, 2 * p);
  }
  return 0;
}

// The time of one step if forward takes 1, and backward 2 in one action or two.
double expected_total(Name name, const Size& size) {
  const double work = 3.0 * size.virtual_stages * size.micro_batches;
  return work / (1 - bubble_formula(name, size));
}

void check_schedule(Name name, const Size& size) {
  SCOPED_TRACE(::testing::Message() << to_text(name) << " p=" << size.ranks << " m=" << size.micro_batches
                                    << " v=" << size.virtual_stages);
  const Replay result = replay(add_messages(generate(name, size)));
  const bool has_formula =
      name != Name::kInterleaved || size.micro_batches % size.ranks == 0 || size.virtual_stages == 1;
  if (has_formula) {
    EXPECT_NEAR(result.total, expected_total(name, size), 1e-9 * result.total);
    EXPECT_NEAR(result.bubble, bubble_formula(name, size), 1e-9);
  } else {
    const int next = (size.micro_batches / size.ranks + 1) * size.ranks;
    EXPECT_GE(result.total, expected_total(name, size) - 1e-9);
    EXPECT_LE(result.total, expected_total(name, {size.ranks, next, size.virtual_stages}) + 1e-9);
  }
  for (int rank = 0; rank < size.ranks; ++rank) {
    bool is_exact = true;
    const int most = most_in_flight(name, size, rank, is_exact);
    const int got = result.in_flight.by_rank[static_cast<std::size_t>(rank)];
    EXPECT_LE(got, most) << "rank " << rank;
    if (is_exact) {
      EXPECT_EQ(got, most) << "rank " << rank;
    }
  }
}

TEST(Generate, EachScheduleIsValidAndHasItsBubbleAndItsActivations) {
  constexpr int kMost = testing::kSanitized ? 10 : 32;  // micro-batches
  for (const Name name : names()) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int m = 1; m <= kMost; ++m) {
        const auto [least, most] = virtual_stages_of(name);
        for (int v = least; v <= std::min(most, 4); ++v) check_schedule(name, {ranks, m, v});
      }
    }
  }
}

TEST(Generate, EachScheduleComputesTheGradients) {
  std::mt19937 random(3);
  for (const Name name : names()) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      for (int m = 1; m <= 11; m += 2) {
        const auto [least, most] = virtual_stages_of(name);
        for (int v = least; v <= std::min(most, 3); ++v) {
          const Schedule schedule = add_messages(generate(name, {ranks, m, v}));
          EXPECT_EQ(testing_schedule::execute(schedule, random), "") << to_text(name) << ranks << ' ' << m << ' ' << v;
        }
      }
    }
  }
}

// Two thirds of the bubble vanish if there are at least as many micro-batches as ranks. With fewer, the pipeline never
// fills, and idle is 2p - 1 - m forwards instead of p - 1.
TEST(Generate, TheBubbleOfZeroBubbleIsAThirdOfThatOf1F1B) {
  for (int p = 2; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      const double zero = replay(add_messages(zero_bubble_h1({p, m}))).idle[0];
      const double one = replay(add_messages(one_f_one_b({p, m}))).idle[0];
      EXPECT_EQ(one, 3 * (p - 1));
      EXPECT_EQ(zero, m >= p ? p - 1 : 2 * p - 1 - m) << p << ' ' << m;
      EXPECT_LE(zero, m >= p ? one / 3 : one * 2 / 3);
    }
  }
}

// With stages on the way back too, the last rank waits for forwards of half as long.
TEST(Generate, TheBubbleOfZeroBubbleVIsASixthOfThatOf1F1B) {
  for (int p = 2; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      const double half = 0.5;  // a rank has two stages of half the time
      const StageTimes times{.forward = half, .backward = 2 * half, .backward_input = half, .backward_weight = half};
      const double zero = replay(add_messages(zero_bubble_v({p, m, 2})), {.stages = {times}}).idle[0];
      const double one = replay(add_messages(one_f_one_b({p, m}))).idle[0];
      const int few = std::max(3 * p - 1 - 2 * m, 4 * p - 1 - 4 * m);
      EXPECT_EQ(zero, half * (m > p ? std::max(p - 1, 4 * p - 2 - 2 * m) : few)) << p << ' ' << m;
      if (m == p || m >= 2 * p - 1) {
        EXPECT_EQ(zero, one / 6);
      }
    }
  }
}

TEST(Generate, BackwardsComeInTheOrderOfTheMicroBatches) {
  for (const Name name : names()) {
    const Size size{.ranks = 3, .micro_batches = 7, .virtual_stages = std::min(2, virtual_stages_of(name).most)};
    const Schedule schedule = generate(name, size);
    std::vector<int> next(schedule.placement.size(), 0);
    for (const auto& list : schedule.actions) {
      for (const Action& action : list) {
        if (action.kind != Kind::kBackward && action.kind != Kind::kBackwardWeight) continue;
        EXPECT_EQ(action.micro_batch, next[static_cast<std::size_t>(action.stage)]++) << to_text(name);
      }
    }
  }
}

std::string compute_of(const Schedule& schedule, std::size_t rank) {
  std::string text;
  for (const Action& action : schedule.actions[rank]) text += (text.empty() ? "" : " ") + to_text(action);
  return text;
}

TEST(Generate, OrdersOfSmallSchedules) {
  EXPECT_EQ(compute_of(one_f_one_b({4, 5}), 2), "F2.0 F2.1 B2.0 F2.2 B2.1 F2.3 B2.2 F2.4 B2.3 B2.4");
  EXPECT_EQ(compute_of(one_f_one_b({4, 2}), 0), "F0.0 F0.1 B0.0 B0.1");
  EXPECT_EQ(compute_of(interleaved({2, 4, 2}), 0),
            "F0.0 F0.1 F2.0 F2.1 F0.2 B2.0 F0.3 B2.1 F2.2 B0.0 F2.3 B0.1 B2.2 B2.3 B0.2 B0.3");
  EXPECT_EQ(compute_of(interleaved({2, 3, 2}), 1), "F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 F1.2 B1.0 B1.1 F3.2 B3.2 B1.2");
  EXPECT_EQ(compute_of(looped_breadth_first({2, 2, 2}), 1), "F1.0 F1.1 F3.0 F3.1 B3.0 B3.1 B1.0 B1.1");
  EXPECT_EQ(compute_of(zero_bubble_h1({3, 4}), 1), "F1.0 F1.1 I1.0 F1.2 I1.1 W1.0 F1.3 I1.2 W1.1 I1.3 W1.2 W1.3");
  EXPECT_EQ(compute_of(zero_bubble_v({2, 3, 2}), 0),
            "F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 I3.1 W3.1 I0.0 W0.0 F3.2 I3.2 W3.2 I0.1 W0.1 I0.2 W0.2");
  EXPECT_EQ(compute_of(zero_bubble_v({2, 3, 2}), 1),
            "F1.0 F2.0 F1.1 F2.1 I2.0 W2.0 F1.2 I1.0 W1.0 F2.2 I2.1 W2.1 I1.1 I2.2 I1.2 W1.1 W2.2 W1.2");
  EXPECT_EQ(compute_of(naive({2, 2}), 1), "F1.0 B1.0 F1.1 B1.1");
  EXPECT_EQ(compute_of(gpipe({2, 2}), 1), "F1.0 F1.1 B1.0 B1.1");
}

TEST(Generate, Placements) {
  EXPECT_EQ(looped(5, 2), (std::vector<int>{0, 1, 0, 1, 0}));
  EXPECT_EQ(v_shaped(7, 3), (std::vector<int>{0, 1, 2, 2, 1, 0, 0}));
  EXPECT_THROW(looped(0, 1), InvalidArgument);
  EXPECT_THROW(v_shaped(1, 0), InvalidArgument);
}

TEST(Generate, WrongSizesAreRefused) {
  EXPECT_THAT([] { gpipe({0, 1}); }, ThrowsMessage<InvalidArgument>(HasSubstr("gpipe: the number of ranks is wrong")));
  EXPECT_THAT([] { zero_bubble_h1({2, 0}); }, ThrowsMessage<InvalidArgument>(HasSubstr("micro-batches")));
  EXPECT_THAT([] { one_f_one_b({2, 2, 2}); }, ThrowsMessage<InvalidArgument>(HasSubstr("use interleaved_1f1b")));
  EXPECT_THAT([] { zero_bubble_v({2, 2}); }, ThrowsMessage<InvalidArgument>(HasSubstr("set virtual_stages to 2")));
  EXPECT_THAT(
      [] {
        interleaved({1 << 19, 1 << 19, 4});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("has too many actions")));
  EXPECT_THAT([] { name_of("1f1"); }, ThrowsMessage<InvalidArgument>(HasSubstr("write 1f1b")));
  for (const Name name : names()) EXPECT_EQ(name_of(to_text(name)), name);
}

TEST(AddMessages, SendsFollowTheirDataAndReceivesComeWhenTheDataExist) {
  const Schedule schedule = add_messages(one_f_one_b({2, 2}));
  EXPECT_EQ(compute_of(schedule, 0), "F0.0 SEND_F0.0>1 F0.1 SEND_F0.1>1 RECV_B0.0<1 B0.0 RECV_B0.1<1 B0.1");
  EXPECT_EQ(compute_of(schedule, 1), "RECV_F1.0<0 F1.0 RECV_F1.1<0 B1.0 SEND_B1.0>0 F1.1 B1.1 SEND_B1.1>0");
}

TEST(AddMessages, SkipsHaveMessagesAndStagesOnOneRankHaveNone) {
  Schedule schedule = gpipe({3, 1});
  schedule.skips = {{0, 2}};
  EXPECT_EQ(compute_of(add_messages(schedule), 0), "F0.0 SEND_F0.0>1 SEND_F0.0>2 RECV_B0.0<2 RECV_B0.0<1 B0.0");
  EXPECT_EQ(compute_of(add_messages(schedule), 2), "RECV_F2.0<0 RECV_F2.0<1 F2.0 B2.0 SEND_B2.0>1 SEND_B2.0>0");
  schedule.ranks = 1;
  schedule.placement = {0, 0, 0};
  schedule.actions = {{}};
  for (int stage = 0; stage < 3; ++stage) schedule.actions[0].push_back({Kind::kForward, stage, 0});
  for (int stage = 3; stage-- > 0;) schedule.actions[0].push_back({Kind::kBackward, stage, 0});
  EXPECT_EQ(add_messages(schedule), schedule);
}

// The memory of a skip is taken no earlier than needed. Messages from neighbours come as soon as they exist.
TEST(AddMessages, ReceivesOfSkipsComeDirectlyBeforeTheirUse) {
  for (const Name name : names()) {
    for (const int p : {4, 5}) {  // so that no neighbours are on the two ranks of a skip
      const auto [least, most] = virtual_stages_of(name);
      Schedule schedule = generate(name, {p, 6, std::min(most, std::max(least, 2))});
      schedule.skips = {{0, 2}, {1, 3}};
      if (name == Name::kZeroBubbleV) schedule.skips = {{0, 2}, {1, p}};
      schedule = add_messages(schedule);
      validate(schedule);
      int found = 0;
      for (const auto& list : schedule.actions) {
        for (auto action = list.begin(); action != list.end(); ++action) {
          if (!is_receive(action->kind) || std::abs(action->stage - action->peer) == 1) continue;
          const auto next = std::find_if(action, list.end(), [](const Action& one) { return is_compute(one.kind); });
          ASSERT_NE(next, list.end());
          EXPECT_EQ(next->stage, action->stage) << to_text(*action) << " before " << to_text(*next);
          EXPECT_EQ(next->micro_batch, action->micro_batch) << to_text(*action) << " before " << to_text(*next);
          EXPECT_EQ(next->kind == Kind::kForward, action->kind == Kind::kReceiveForward);
          ++found;
        }
      }
      EXPECT_EQ(found, static_cast<int>(schedule.skips.size()) * 2 * 6) << to_text(name);
    }
  }
}

// Rank 1 needs RECV_F3.0<0 in F3.0, after F1.1. But rank 0 sends this message before the one that F1.1 needs.
TEST(AddMessages, ASkipComesNoLaterThanWhatItsRankSendsAfterIt) {
  Schedule schedule{.ranks = 2, .micro_batches = 2, .placement = {0, 1, 0, 1}, .skips = {{0, 3}}, .actions = {{}, {}}};
  for (const int rank : {0, 1}) {
    for (const Kind kind : {Kind::kForward, Kind::kBackward}) {
      for (const bool second : {kind == Kind::kBackward, kind == Kind::kForward}) {
        for (const int m : {0, 1}) {
          schedule.actions[static_cast<std::size_t>(rank)].push_back({kind, second ? rank + 2 : rank, m});
        }
      }
    }
  }
  schedule = add_messages(schedule);
  validate(schedule);
  EXPECT_THAT(compute_of(schedule, 1),
              ::testing::StartsWith("RECV_F1.0<0 F1.0 SEND_F1.0>2 RECV_F3.0<0 RECV_F1.1<0 F1.1 SEND_F1.1>2 RECV_F3.1<0 "
                                    "RECV_F3.0<2 F3.0 RECV_F3.1<2 F3.1 "));
}

TEST(AddMessages, RefusesSchedulesThatCannotRun) {
  const Schedule complete = add_messages(gpipe({2, 1}));
  EXPECT_THAT([&] { add_messages(complete); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank 0, position 1: SEND_F0.0>1")));
  Schedule wrong = gpipe({2, 2});
  std::swap(wrong.actions[1][0], wrong.actions[1][2]);  // B1.0 before F1.0
  EXPECT_THAT(
      [&] { add_messages(wrong); },
      ThrowsMessage<InvalidArgument>(HasSubstr("rank 1, position 0: B1.0 waits for F1.0 (rank 1, position 2)")));
  wrong = gpipe({2, 2});
  std::swap(wrong.actions[0][1], wrong.actions[0][2]);  // B0.0 before F0.1, while rank 1 needs F0.1 before B1.0
  EXPECT_THAT([&] { add_messages(wrong); },
              ThrowsMessage<InvalidArgument>(::testing::AllOf(
                  HasSubstr("rank 0, position 1: B0.0 waits for B1.0 (rank 1, position 2), which comes after F1.1"),
                  HasSubstr("rank 1, position 1: F1.1 waits for F0.1 (rank 0, position 2), which comes after B0.0"))));
}

}  // namespace
}  // namespace reigen::schedule
