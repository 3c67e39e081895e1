#include <algorithm>

#include "schedule/known/generators.h"

namespace reigen::schedule {

double bubble_formula(Name name, const Size& size) {
  check_size(name, size);
  const double p = size.ranks;
  const double m = size.micro_batches;
  const double v = size.virtual_stages;
  // Idle time and work of a rank. The unit is forward plus backward of one stage; for zb_h1 and zb_v it is a third of
  // that.
  double idle = p - 1;
  double work = v * m;
  switch (name) {
    case Name::kNaive: idle = (p - 1) * work; break;
    case Name::kLoopedBreadthFirst: idle = p - 1 + (v - 1) * std::max(0.0, p - m); break;
    case Name::kZeroBubbleH1:
      idle = std::max(p - 1, 2 * p - 1 - m);
      work = 3 * m;
      break;
    case Name::kZeroBubbleV:
      idle = m > p ? std::max(p - 1, 4 * p - 2 - 2 * m) : std::max(3 * p - 1 - 2 * m, 4 * p - 1 - 4 * m);
      work = 3 * v * m;
      break;
    case Name::kGpipe:
    case Name::kOneFOneB:
    case Name::kInterleaved: break;
  }
  if (size.ranks == 1) return 0;
  return idle / (idle + work);
}

}  // namespace reigen::schedule
