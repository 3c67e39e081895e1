#include "schedule/known/generators.h"

namespace reigen::schedule {

Schedule looped_breadth_first(const Size& size) {
  Schedule schedule = empty_schedule(Name::kLoopedBreadthFirst, size);
  for (int rank = 0; rank < size.ranks; ++rank) {
    auto& list = schedule.actions[static_cast<std::size_t>(rank)];
    for (int chunk = 0; chunk < size.virtual_stages; ++chunk) {
      for (int m = 0; m < size.micro_batches; ++m) list.push_back(forward(stage_of(size, rank, chunk), m));
    }
    for (int chunk = size.virtual_stages; chunk-- > 0;) {
      for (int m = 0; m < size.micro_batches; ++m) list.push_back(backward(stage_of(size, rank, chunk), m));
    }
  }
  return schedule;
}

}  // namespace reigen::schedule
