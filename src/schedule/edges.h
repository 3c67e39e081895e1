// The edges between the stages of a schedule, the places of its actions, and the checks of both.
// Thread rule: values, freely copied between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/schedule/schedule.h"

namespace reigen::schedule {

// sources[s] = the stages whose outputs stage s reads: stage s-1 first, then those of its skips.
// targets[s] = the stages that read the output of stage s: stage s+1 first, then those of its skips.
struct Edges {
  std::vector<std::vector<int>> sources;
  std::vector<std::vector<int>> targets;
};

// Throws InvalidArgument if the numbers, the placement, the skips or the tied stages of the schedule are wrong.
Edges edges_of(const Schedule& schedule);

// A position in the list of a rank.
struct Place {
  int rank = kNone;
  int position = kNone;
  bool operator==(const Place&) const = default;
};

struct ActionHash {
  std::size_t operator()(const Action& action) const {
    std::uint64_t hash = static_cast<std::uint64_t>(action.kind);
    for (const int number : {action.stage, action.micro_batch, action.peer}) {
      hash = (hash + static_cast<std::uint32_t>(number)) * 0x9e3779b97f4a7c15U;
      hash ^= hash >> 32;
    }
    return static_cast<std::size_t>(hash);
  }
};
// The places of all actions except UNSHARD and RESHARD, of which there may be several that are equal.
using Places = std::unordered_map<Action, Place, ActionHash>;

// Throws InvalidArgument, naming the action, for an action whose stage, micro-batch or peer is wrong, that is on the
// wrong rank, twice or missing (checks 1 and 2 of validate.h).
Places places_of(const Schedule& schedule, const Edges& edges);

const Action& action_at(const Schedule& schedule, const Place& place);

// The place of the action that computes the gradient of stage `stage`'s inputs: B or I.
Place backward_at(const Places& places, int stage, int micro_batch);
// The place of the action that frees the activation of stage `stage`: B or W.
Place last_at(const Places& places, int stage, int micro_batch);

// "rank 1, position 3: F1.0"
std::string to_text(const Schedule& schedule, const Place& place);

InvalidArgument refused(const std::string& what, const std::string& got, const std::string& expected,
                        const std::string& fix = {});

}  // namespace reigen::schedule
