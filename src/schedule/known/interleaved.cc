#include <algorithm>
#include <vector>

#include "schedule/known/generators.h"

namespace reigen::schedule {
namespace {

// One forward or backward of a rank.
struct Turn {
  int chunk = 0;
  int micro_batch = 0;
};

// The forwards of a rank in order, for a number of micro-batches that the number of ranks divides.
std::vector<Turn> turns_of(const Size& size, int micro_batches) {
  std::vector<Turn> turns;
  for (int group = 0; group < micro_batches; group += size.ranks) {
    for (int chunk = 0; chunk < size.virtual_stages; ++chunk) {
      for (int i = 0; i < size.ranks; ++i) turns.push_back({.chunk = chunk, .micro_batch = group + i});
    }
  }
  return turns;
}

}  // namespace

Schedule interleaved(const Size& size) {
  Schedule schedule = empty_schedule(Name::kInterleaved, size);
  if (size.virtual_stages == 1) return one_f_one_b(size);
  // The order is made for the next multiple of the ranks. Removing the actions of a micro-batch cannot make the others
  // wait for each other, because actions use only data of their own micro-batch.
  const int groups = (size.micro_batches + size.ranks - 1) / size.ranks;
  const std::vector<Turn> turns = turns_of(size, groups * size.ranks);
  for (int rank = 0; rank < size.ranks; ++rank) {
    auto& list = schedule.actions[static_cast<std::size_t>(rank)];
    const auto add = [&](Kind kind, int chunk, int m) {
      if (m < size.micro_batches) list.push_back({kind, stage_of(size, rank, chunk), m});
    };
    const std::size_t wanted =
        static_cast<std::size_t>((size.virtual_stages - 1) * size.ranks + 2 * (size.ranks - 1 - rank));
    const std::size_t first = std::min(turns.size(), wanted);
    for (std::size_t i = 0; i < first; ++i) add(Kind::kForward, turns[i].chunk, turns[i].micro_batch);
    for (std::size_t i = 0; i < turns.size(); ++i) {
      if (first + i < turns.size()) add(Kind::kForward, turns[first + i].chunk, turns[first + i].micro_batch);
      add(Kind::kBackward, size.virtual_stages - 1 - turns[i].chunk, turns[i].micro_batch);
    }
  }
  return schedule;
}

}  // namespace reigen::schedule
