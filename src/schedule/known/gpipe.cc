#include "schedule/known/generators.h"

namespace reigen::schedule {

Schedule gpipe(const Size& size) {
  Schedule schedule = empty_schedule(Name::kGpipe, size);
  for (int rank = 0; rank < size.ranks; ++rank) {
    auto& list = schedule.actions[static_cast<std::size_t>(rank)];
    for (int m = 0; m < size.micro_batches; ++m) list.push_back(forward(rank, m));
    for (int m = 0; m < size.micro_batches; ++m) list.push_back(backward(rank, m));
  }
  return schedule;
}

}  // namespace reigen::schedule
