// What each action of a schedule needs: earlier actions of its rank, and the other side of its message.
// Thread rule: values, freely copied between threads.
#pragma once

#include <vector>

#include "schedule/edges.h"

namespace reigen::schedule {

struct Links {
  // needs[r][i] = the positions in the list of rank r of the actions that action i uses. All are before i.
  std::vector<std::vector<std::vector<int>>> needs;
  // partners[r][i] = the place of the other side, if action i is a message.
  std::vector<std::vector<Place>> partners;
};

// Throws InvalidArgument, naming the action, if an action comes before one that it needs, or if the messages from one
// rank to another do not match (checks 3 and 4 of validate.h).
Links links_of(const Schedule& schedule, const Edges& edges, const Places& places);

// The same after all checks of validate.h.
Links checked_links_of(const Schedule& schedule);

}  // namespace reigen::schedule
