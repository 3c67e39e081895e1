#include "reigen/schedule/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/schedule/generate.h"
#include "reigen/schedule/text.h"

namespace reigen::schedule {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Rank 0: F0.0 SEND_F0.0>1 F0.1 SEND_F0.1>1 RECV_B0.0<1 B0.0 RECV_B0.1<1 B0.1
// Rank 1: RECV_F1.0<0 F1.0 RECV_F1.1<0 B1.0 SEND_B1.0>0 F1.1 B1.1 SEND_B1.1>0
Schedule small() { return add_messages(one_f_one_b({2, 2})); }

int position_of(const Schedule& schedule, int rank, const std::string& action) {
  const auto& list = schedule.actions[static_cast<std::size_t>(rank)];
  const auto found = std::find_if(list.begin(), list.end(), [&](const Action& a) { return to_text(a) == action; });
  EXPECT_NE(found, list.end()) << action;
  return static_cast<int>(found - list.begin());
}

Action& find(Schedule& schedule, int rank, const std::string& action) {
  return schedule
      .actions[static_cast<std::size_t>(rank)][static_cast<std::size_t>(position_of(schedule, rank, action))];
}

void remove(Schedule& schedule, int rank, const std::string& action) {
  auto& list = schedule.actions[static_cast<std::size_t>(rank)];
  list.erase(list.begin() + position_of(schedule, rank, action));
}

// Puts the action before another action of the same rank.
void move_before(Schedule& schedule, int rank, const std::string& action, const std::string& other) {
  const Action moved = find(schedule, rank, action);
  remove(schedule, rank, action);
  auto& list = schedule.actions[static_cast<std::size_t>(rank)];
  list.insert(list.begin() + position_of(schedule, rank, other), moved);
}

void expect_refused(const Schedule& schedule, const ::testing::Matcher<std::string>& message) {
  EXPECT_THAT([&] { validate(schedule); }, ThrowsMessage<InvalidArgument>(message)) << to_text(schedule);
}

TEST(Validate, ReturnsTheActivationsInFlight) {
  EXPECT_EQ(validate(small()), (InFlight{.by_stage = {2, 1}, .by_rank = {2, 1}}));
  EXPECT_EQ(validate(add_messages(looped_breadth_first({2, 3, 2}))),
            (InFlight{.by_stage = {3, 3, 3, 3}, .by_rank = {6, 6}}));
  EXPECT_EQ(validate(add_messages(zero_bubble_h1({3, 5}))), (InFlight{.by_stage = {3, 3, 3}, .by_rank = {3, 3, 3}}));
}

TEST(Validate, LimitsOfActivationsAreHeld) {
  const Schedule schedule = add_messages(gpipe({2, 4}));
  EXPECT_NO_THROW(validate(schedule, {.most_by_stage = 4, .most_by_rank = 4}));
  EXPECT_THAT(
      [&] { validate(schedule, {.most_by_stage = 3}); },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("rank 0, position 6: F0.3 holds too many activations of its "
                                                     "stage"),
                                           HasSubstr("4 in flight"), HasSubstr("at most 3"))));
  EXPECT_THAT(
      [&] {
        validate(add_messages(looped_breadth_first({1, 2, 2})), {.most_by_stage = 2, .most_by_rank = 3});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("rank 0, position 3: F1.1 holds too many activations of its rank")));
}

TEST(Validate, NamesAMissingAction) {
  Schedule schedule = small();
  remove(schedule, 1, "F1.1");
  expect_refused(schedule, HasSubstr("rank 1: F1.1 is missing"));
  schedule = small();
  remove(schedule, 0, "B0.1");
  expect_refused(schedule, HasSubstr("rank 0: B0.1 is missing"));
  schedule = add_messages(zero_bubble_h1({2, 2}));
  remove(schedule, 1, "W1.0");
  expect_refused(schedule, AllOf(HasSubstr("rank 1: W1.0 is missing"), HasSubstr("W after I")));
  schedule = add_messages(zero_bubble_h1({2, 2}));
  remove(schedule, 0, "I0.1");
  expect_refused(schedule, HasSubstr("rank 0: I0.1 is missing"));
}

TEST(Validate, NamesAMessageThatIsMissing) {
  Schedule schedule = small();
  remove(schedule, 1, "RECV_F1.1<0");
  expect_refused(schedule, AllOf(HasSubstr("rank 1, position 4: F1.1 lacks a message"), HasSubstr("no RECV_F1.1<0")));
  schedule = small();
  remove(schedule, 1, "SEND_B1.0>0");
  expect_refused(schedule, AllOf(HasSubstr("rank 0, position 4: RECV_B0.0<1 is never sent"),
                                 HasSubstr("rank 1 has no SEND_B1.0>0")));
}

TEST(Validate, NamesAnActionThatComesTwice) {
  Schedule schedule = small();
  schedule.actions[1].push_back(find(schedule, 1, "F1.0"));
  expect_refused(schedule, AllOf(HasSubstr("rank 1, position 8: F1.0 comes twice"), HasSubstr("also at position 1")));
  schedule = add_messages(zero_bubble_h1({2, 2}));
  schedule.actions[0].push_back({Kind::kBackward, 0, 1});
  expect_refused(schedule, HasSubstr("I0.1 computes again what B0.1 computes"));
}

TEST(Validate, NamesAnActionThatComesTooEarly) {
  Schedule schedule = small();
  move_before(schedule, 1, "F1.0", "RECV_F1.0<0");
  expect_refused(schedule, AllOf(HasSubstr("rank 1, position 0: F1.0 comes too early"),
                                 HasSubstr("RECV_F1.0<0 comes at position 1")));
  schedule = small();
  move_before(schedule, 0, "B0.1", "RECV_B0.1<1");
  expect_refused(schedule, HasSubstr("rank 0, position 6: B0.1 comes too early"));
  schedule = small();
  move_before(schedule, 1, "SEND_B1.1>0", "B1.1");
  expect_refused(schedule, HasSubstr("rank 1, position 6: SEND_B1.1>0 comes too early"));
  schedule = add_messages(zero_bubble_h1({2, 2}));
  move_before(schedule, 0, "W0.0", "I0.0");
  expect_refused(schedule, HasSubstr("W0.0 comes too early"));
}

TEST(Validate, NamesMessagesInAnotherOrder) {
  Schedule schedule = small();
  move_before(schedule, 0, "F0.1", "F0.0");
  move_before(schedule, 0, "SEND_F0.1>1", "SEND_F0.0>1");
  expect_refused(schedule, AllOf(HasSubstr("rank 1, position 0: RECV_F1.0<0 gets another message"),
                                 HasSubstr("message 0 from rank 0 to rank 1 is rank 0, position 2: SEND_F0.1>1")));
}

TEST(Validate, ListsTheActionsThatWaitForEachOther) {
  Schedule schedule = small();
  move_before(schedule, 0, "RECV_B0.0<1", "SEND_F0.0>1");
  expect_refused(
      schedule,
      AllOf(HasSubstr("these actions wait for each other"),
            HasSubstr("rank 0, position 1: RECV_B0.0<1 waits for SEND_B1.0>0 (rank 1, position 4), which comes after "
                      "RECV_F1.0<0"),
            HasSubstr("rank 1, position 0: RECV_F1.0<0 waits for SEND_F0.0>1 (rank 0, position 2), which comes after "
                      "RECV_B0.0<1")));
}

TEST(Validate, ACycleOfThreeRanksDoesNotNameTheRankThatWaitsForIt) {
  Schedule schedule = add_messages(gpipe({4, 1}));
  move_before(schedule, 2, "RECV_B2.0<3", "RECV_F2.0<1");  // rank 2 and 3 wait for each other, 0 and 1 for them
  EXPECT_THAT([&] { validate(schedule); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("rank 2, position 0: RECV_B2.0<3"),
                                                   HasSubstr("rank 3, position 0: RECV_F3.0<2"),
                                                   ::testing::Not(HasSubstr("rank 0, position")))));
}

TEST(Validate, NamesWhatDoesNotExist) {
  const auto changed = [](const std::string& action, const Action& to) {
    Schedule schedule = small();
    find(schedule, 1, action) = to;
    return schedule;
  };
  expect_refused(changed("F1.0", {Kind::kForward, 7, 0}),
                 AllOf(HasSubstr("rank 1, position 1: F7.0 is of a stage that does not exist"), HasSubstr("0 to 1")));
  expect_refused(changed("F1.0", {Kind::kForward, 0, 0}),
                 AllOf(HasSubstr("rank 1, position 1: F0.0 is on the wrong rank"), HasSubstr("rank 0")));
  expect_refused(changed("F1.0", {Kind::kForward, 1, 2}), HasSubstr("F1.2 is of a micro-batch that does not exist"));
  expect_refused(changed("F1.0", {Kind::kForward, 1, 0, 0}), HasSubstr("has a peer"));
  expect_refused(changed("F1.0", {Kind::kUnshard, 1, 0}), HasSubstr("UNSHARD1.0 has a micro-batch"));
  expect_refused(changed("F1.0", {static_cast<Kind>(99), 1, 0}), HasSubstr("has an unknown kind"));
  expect_refused(changed("RECV_F1.0<0", {Kind::kReceiveForward, 1, 0, 3}),
                 HasSubstr("rank 1, position 0: RECV_F1.0<3 is a message that nobody needs"));
  expect_refused(changed("SEND_B1.0>0", {Kind::kSendForward, 1, 0, 0}),
                 AllOf(HasSubstr("SEND_F1.0>0 is a message that nobody needs"), HasSubstr("no such message")));
  Schedule schedule = small();
  schedule.ranks = 1;
  schedule.placement = {0, 0};
  schedule.actions = {{{Kind::kForward, 0, 0}, {Kind::kSendForward, 0, 0, 1}}};
  expect_refused(schedule, HasSubstr("rank 0, position 1: SEND_F0.0>1 is a message to the same rank"));
}

TEST(Validate, RefusesWrongDeclarations) {
  const auto with = [](auto change) {
    Schedule schedule = add_messages(gpipe({3, 1}));
    change(schedule);
    return schedule;
  };
  expect_refused(with([](Schedule& s) { s.ranks = 0; }), HasSubstr("the number of ranks"));
  expect_refused(with([](Schedule& s) { s.micro_batches = 0; }), HasSubstr("the number of micro-batches"));
  expect_refused(with([](Schedule& s) { s.placement = {}; }), HasSubstr("the number of stages"));
  expect_refused(with([](Schedule& s) { s.placement[2] = 3; }), HasSubstr("stage 2 is placed on a rank that does not"));
  expect_refused(with([](Schedule& s) { s.actions.pop_back(); }), HasSubstr("the number of lists"));
  expect_refused(with([](Schedule& s) { s.skips = {{0, 1}}; }), HasSubstr("skip 0 1"));
  expect_refused(with([](Schedule& s) { s.skips = {{0, 3}}; }), HasSubstr("skip 0 3"));
  expect_refused(with([](Schedule& s) { s.skips = {{0, 2}, {0, 2}}; }), HasSubstr("comes twice"));
  expect_refused(with([](Schedule& s) { s.skips = {{0, 2}}; }), HasSubstr("rank 0 has no RECV_B0.0<2"));
  expect_refused(with([](Schedule& s) { s.tied = {{0, 3}}; }), HasSubstr("tied 0 3"));
  expect_refused(with([](Schedule& s) { s.tied = {{1}}; }), HasSubstr("tied 1"));
  expect_refused(with([](Schedule& s) { s.tied = {{1, 1}}; }), HasSubstr("tied 1 1"));
  EXPECT_NO_THROW(validate(with([](Schedule& s) { s.tied = {{0, 2}}; })));
}

TEST(Validate, ShardedWeightsAreWholeWhereTheyAreUsed) {
  const auto one_rank = [](const std::string& list) {
    return parse_schedule("ranks 1\nstages 1\nmicro_batches 1\nplacement looped\nrank 0: " + list);
  };
  EXPECT_NO_THROW(validate(one_rank("UNSHARD0 F0.0 RESHARD0 UNSHARD0 B0.0 RESHARD0 REDUCE_GRAD0")));
  EXPECT_NO_THROW(validate(one_rank("F0.0 B0.0 REDUCE_GRAD0")));
  expect_refused(one_rank("UNSHARD0 F0.0 RESHARD0 B0.0"),
                 HasSubstr("rank 0, position 3: B0.0 computes with weights that are not whole"));
  expect_refused(one_rank("F0.0 UNSHARD0 B0.0"), HasSubstr("position 0: F0.0 computes with weights"));
  expect_refused(one_rank("UNSHARD0 UNSHARD0 F0.0 B0.0"),
                 HasSubstr("position 1: UNSHARD0 gathers weights that are whole"));
  expect_refused(one_rank("F0.0 B0.0 RESHARD0"), HasSubstr("position 2: RESHARD0 frees weights that are not sharded"));
  expect_refused(one_rank("UNSHARD0 F0.0 B0.0 RESHARD0 RESHARD0"), HasSubstr("position 4: RESHARD0 frees weights"));
  expect_refused(one_rank("F0.0 REDUCE_GRAD0 B0.0"), HasSubstr("position 1: REDUCE_GRAD0 comes too early"));
  expect_refused(one_rank("F0.0 B0.0 REDUCE_GRAD0 REDUCE_GRAD0"), HasSubstr("position 3: REDUCE_GRAD0 comes twice"));
}

}  // namespace
}  // namespace reigen::schedule
