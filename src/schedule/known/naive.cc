#include "schedule/known/generators.h"

namespace reigen::schedule {

Schedule naive(const Size& size) {
  Schedule schedule = empty_schedule(Name::kNaive, size);
  for (int rank = 0; rank < size.ranks; ++rank) {
    auto& list = schedule.actions[static_cast<std::size_t>(rank)];
    for (int m = 0; m < size.micro_batches; ++m) {
      for (int chunk = 0; chunk < size.virtual_stages; ++chunk) list.push_back(forward(stage_of(size, rank, chunk), m));
      for (int chunk = size.virtual_stages; chunk-- > 0;) list.push_back(backward(stage_of(size, rank, chunk), m));
    }
  }
  return schedule;
}

}  // namespace reigen::schedule
