#include <algorithm>

#include "schedule/known/generators.h"

namespace reigen::schedule {

Schedule one_f_one_b(const Size& size) {
  Schedule schedule = empty_schedule(Name::kOneFOneB, size);
  for (int rank = 0; rank < size.ranks; ++rank) {
    auto& list = schedule.actions[static_cast<std::size_t>(rank)];
    const int first = std::min(size.micro_batches, size.ranks - 1 - rank);
    for (int m = 0; m < first; ++m) list.push_back(forward(rank, m));
    for (int m = 0; m < size.micro_batches; ++m) {
      if (first + m < size.micro_batches) list.push_back(forward(rank, first + m));
      list.push_back(backward(rank, m));
    }
  }
  return schedule;
}

}  // namespace reigen::schedule
