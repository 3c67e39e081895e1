// Changes schedules at random, and compares what validate() says with what a small runtime can do.
#include "schedule/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "harness/sanitizer.h"
#include "reigen/base/error.h"
#include "reigen/schedule/generate.h"
#include "reigen/schedule/replay.h"
#include "reigen/schedule/text.h"
#include "reigen/schedule/validate.h"

namespace reigen::schedule {
namespace {

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  int below(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }
  bool one_in(int n) { return below(n) == 0; }
  std::mt19937& generator() { return random_; }

 private:
  std::mt19937 random_;
};

// The actions that compute, in a random order in which every action finds its data.
void add_in_random_order(Schedule& schedule, Dice& dice) {
  const testing_schedule::Connections edges(schedule);
  const auto stages = static_cast<std::size_t>(schedule.stages());
  const auto each =
      std::vector<std::vector<char>>(stages, std::vector<char>(static_cast<std::size_t>(schedule.micro_batches)));
  auto has_forward = each;
  auto has_backward = each;
  auto has_weight = each;
  const auto all = [](const auto& done, const std::vector<int>& of, std::size_t m) {
    return std::all_of(of.begin(), of.end(), [&](int s) { return done[static_cast<std::size_t>(s)][m] != 0; });
  };
  for (int left = schedule.stages() * schedule.micro_batches; left > 0;) {
    const int stage = dice.below(schedule.stages());
    const int micro_batch = dice.below(schedule.micro_batches);
    const auto s = static_cast<std::size_t>(stage);
    const auto m = static_cast<std::size_t>(micro_batch);
    auto& list = schedule.actions[static_cast<std::size_t>(schedule.placement[s])];
    if (has_forward[s][m] == 0) {
      if (!all(has_forward, edges.from[s], m)) continue;
      list.push_back({Kind::kForward, stage, micro_batch});
      has_forward[s][m] = 1;
    } else if (has_backward[s][m] == 0) {
      if (!all(has_backward, edges.to[s], m)) continue;
      const bool is_whole = dice.one_in(2);
      list.push_back({is_whole ? Kind::kBackward : Kind::kBackwardInput, stage, micro_batch});
      has_backward[s][m] = 1;
      has_weight[s][m] = is_whole ? 1 : 0;
      left -= is_whole ? 1 : 0;
    } else if (has_weight[s][m] == 0) {
      list.push_back({Kind::kBackwardWeight, stage, micro_batch});
      has_weight[s][m] = 1;
      --left;
    }
  }
}

// Gathers and frees the weights of one stage around some of its actions.
void add_sharding(Schedule& schedule, int stage, Dice& dice) {
  auto& list = schedule.actions[static_cast<std::size_t>(schedule.placement[static_cast<std::size_t>(stage)])];
  std::vector<Action> result;
  bool is_whole = false;
  for (const Action& action : list) {
    const bool is_here = action.stage == stage && is_compute(action.kind);
    if (is_here && !is_whole) {
      result.push_back({Kind::kUnshard, stage});
      is_whole = true;
    }
    result.push_back(action);
    if (is_here && dice.one_in(2)) {
      result.push_back({Kind::kReshard, stage});
      is_whole = false;
    }
  }
  result.push_back({Kind::kReduceGrad, stage});
  list = result;
}

int stages_of(Name name, Dice& dice) {
  const auto [least, most] = virtual_stages_of(name);
  return least + dice.below(std::min(most, least + 2) - least + 1);
}

Schedule random_schedule(Dice& dice) {
  if (dice.one_in(3)) {
    const Name name = names()[static_cast<std::size_t>(dice.below(static_cast<int>(names().size())))];
    return add_messages(generate(name, {1 + dice.below(4), 1 + dice.below(4), stages_of(name, dice)}));
  }
  Schedule schedule{.ranks = 1 + dice.below(4), .micro_batches = 1 + dice.below(3), .placement = {}, .actions = {}};
  const int stages = 1 + dice.below(6);
  for (int stage = 0; stage < stages; ++stage) schedule.placement.push_back(dice.below(schedule.ranks));
  for (int from = 0; from + 2 < stages; ++from) {
    if (dice.one_in(3)) schedule.skips.push_back({from, from + 2 + dice.below(stages - from - 2)});
  }
  schedule.actions.resize(static_cast<std::size_t>(schedule.ranks));
  add_in_random_order(schedule, dice);
  for (int stage = 0; stage < stages; ++stage) {
    if (dice.one_in(3)) add_sharding(schedule, stage, dice);
  }
  return add_messages(schedule);
}

void change_action(Schedule& schedule, Action& action, Dice& dice) {
  const auto other = [&](std::vector<Kind> kinds) {
    return kinds[static_cast<std::size_t>(dice.below(static_cast<int>(kinds.size())))];
  };
  switch (dice.below(4)) {
    case 0: action.stage = dice.below(schedule.stages() + 1); break;
    case 1:
      if (action.micro_batch != kNone) action.micro_batch = dice.below(schedule.micro_batches + 1);
      break;
    case 2:
      if (is_message(action.kind)) action.peer = dice.below(schedule.stages() + 1);
      break;
    default:
      if (is_compute(action.kind)) {
        action.kind = other({Kind::kForward, Kind::kBackward, Kind::kBackwardInput, Kind::kBackwardWeight});
      } else if (is_message(action.kind)) {
        action.kind = other({Kind::kSendForward, Kind::kReceiveForward, Kind::kSendBackward, Kind::kReceiveBackward});
      } else {
        action.kind = other({Kind::kUnshard, Kind::kReshard, Kind::kReduceGrad});
      }
  }
}

void mutate(Schedule& schedule, Dice& dice) {
  auto& list = schedule.actions[static_cast<std::size_t>(dice.below(schedule.ranks))];
  if (list.empty()) return;
  const int size = static_cast<int>(list.size());
  const int from = dice.below(size);
  const int to = dice.one_in(2) ? std::min(from + 1, size - 1) : dice.below(size);
  const Action action = list[static_cast<std::size_t>(from)];
  switch (dice.below(8)) {
    case 0: list.erase(list.begin() + from); break;
    case 1: list.insert(list.begin() + to, action); break;
    case 2:
    case 3: std::swap(list[static_cast<std::size_t>(from)], list[static_cast<std::size_t>(to)]); break;
    case 4:
    case 5:
      list.erase(list.begin() + from);
      list.insert(list.begin() + to, action);
      break;
    case 6: {
      list.erase(list.begin() + from);
      auto& other = schedule.actions[static_cast<std::size_t>(dice.below(schedule.ranks))];
      other.insert(other.begin() + dice.below(static_cast<int>(other.size()) + 1), action);
      break;
    }
    default: change_action(schedule, list[static_cast<std::size_t>(from)], dice);
  }
}

std::string refusal_of(const Schedule& schedule) {
  try {
    validate(schedule);
    return "";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(Executor, SchedulesWithMessagesFinish) {
  Dice dice(1);
  for (int round = 0; round < 3000; ++round) {
    const Schedule schedule = random_schedule(dice);
    ASSERT_EQ(refusal_of(schedule), "") << to_text(schedule);
    ASSERT_EQ(testing_schedule::execute(schedule, dice.generator()), "") << to_text(schedule);
  }
}

TEST(Executor, FinishesExactlyWhatValidateAccepts) {
  constexpr int kRounds = testing::rounds(20000);
  Dice dice(2);
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < kRounds; ++round) {
    Schedule schedule = random_schedule(dice);
    const int changes = 1 + dice.below(3);
    for (int i = 0; i < changes; ++i) mutate(schedule, dice);
    const std::string refusal = refusal_of(schedule);
    const std::string failure = testing_schedule::execute(schedule, dice.generator());
    ASSERT_EQ(refusal.empty(), failure.empty()) << "validate: " << refusal << "\nexecutor: " << failure << '\n'
                                                << to_text(schedule);
    ++(refusal.empty() ? accepted : refused);
    if (refusal.empty()) {
      // The longest time is that of a rank that waits in receives; both replays end.
      EXPECT_GE(replay(schedule, {.receives_wait = true}).total, replay(schedule).total);
    }
  }
  EXPECT_GT(accepted, kRounds / 10);
  EXPECT_GT(refused, kRounds / 10);
}

}  // namespace
}  // namespace reigen::schedule
