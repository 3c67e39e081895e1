#include "comm/schedule/algorithms.h"
#include "comm/schedule/cut.h"

namespace reigen::comm::schedule {

namespace {

int distance_of(const Problem& p) { return (p.rank - p.root + p.size) % p.size; }
int rank_at(const Problem& p, int distance) { return (p.root + distance) % p.size; }

}  // namespace

Schedule tree_broadcast(const Problem& p) {
  const std::size_t count = Blocks(p.counts).total();
  const int own = distance_of(p);
  Schedule schedule;
  int bit = 1;
  for (; bit < p.size; bit *= 2) {
    if ((own & bit) == 0) continue;
    Step step;
    add(step.receives, rank_at(p, own - bit), {Buffer::kOutput, 0, count});
    add(schedule, std::move(step));
    break;
  }
  for (bit /= 2; bit > 0; bit /= 2) {
    if (own + bit >= p.size) continue;
    Step step;
    add(step.sends, rank_at(p, own + bit), {own == 0 ? Buffer::kInput : Buffer::kOutput, 0, count});
    add(schedule, std::move(step));
  }
  return schedule;
}

Schedule tree_reduce(const Problem& p) {
  const std::size_t count = Blocks(p.counts).total();
  const int own = distance_of(p);
  const bool is_root = own == 0;
  // Only the root has an output. The other ranks add in scratch.
  const Range sum{is_root ? Buffer::kOutput : Buffer::kScratch, is_root ? 0 : count, count};
  const Range arrived{Buffer::kScratch, 0, count};
  Schedule schedule{.scratch = is_root ? count : 2 * count};
  Range source{Buffer::kInput, 0, count};
  for (int bit = 1; bit < p.size; bit *= 2) {
    Step step;
    if ((own & bit) != 0) {
      add(step.sends, rank_at(p, own - bit), source);
      add(schedule, std::move(step));
      return schedule;
    }
    if (own + bit >= p.size) continue;
    add(step.receives, rank_at(p, own + bit), arrived);
    if (count > 0) step.locals.push_back({Local::Kind::kReduce, sum, {source, arrived}});
    add(schedule, std::move(step));
    source = sum;
  }
  if (schedule.steps.empty()) {
    add(schedule, count == 0 ? Step{} : Step{.locals = {{Local::Kind::kFinish, sum, {source}}}});
  } else if (!schedule.steps.back().locals.empty()) {
    schedule.steps.back().locals.back().kind = Local::Kind::kFinish;
  }
  return schedule;
}

}  // namespace reigen::comm::schedule
