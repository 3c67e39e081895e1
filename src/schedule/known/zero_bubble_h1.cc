#include <algorithm>

#include "schedule/known/generators.h"

namespace reigen::schedule {

Schedule zero_bubble_h1(const Size& size) {
  Schedule schedule = empty_schedule(Name::kZeroBubbleH1, size);
  for (int rank = 0; rank < size.ranks; ++rank) {
    auto& list = schedule.actions[static_cast<std::size_t>(rank)];
    const int first = std::min(size.micro_batches, size.ranks - 1 - rank);
    for (int m = 0; m < first; ++m) list.push_back(forward(rank, m));
    // Rank r begins with r forwards less than rank 0. So it can hold r activations until their W, and has in flight no
    // more than rank 0.
    for (int m = 0; m < size.micro_batches; ++m) {
      if (first + m < size.micro_batches) list.push_back(forward(rank, first + m));
      list.push_back({Kind::kBackwardInput, rank, m});
      if (m >= rank) list.push_back({Kind::kBackwardWeight, rank, m - rank});
    }
    for (int m = std::max(0, size.micro_batches - rank); m < size.micro_batches; ++m) {
      list.push_back({Kind::kBackwardWeight, rank, m});
    }
  }
  return schedule;
}

}  // namespace reigen::schedule
