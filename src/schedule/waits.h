// The report of ranks that wait for each other.
// Thread rule: values, freely copied between threads.
#pragma once

#include <optional>
#include <vector>

#include "schedule/edges.h"

namespace reigen::schedule {

// The action at which a rank stops, and the action on any rank that it waits for.
struct Wait {
  Place blocked;
  Place awaited;
};

// waits[r] = what rank r waits for; nothing if rank r has finished its list. At least one rank waits, and each awaited
// action is in the list of a rank that waits. Returns the error that lists the actions of one cycle.
InvalidArgument cycle_of(const Schedule& schedule, const std::vector<std::optional<Wait>>& waits);

}  // namespace reigen::schedule
