// Counts the activations that a schedule holds.
// Thread rule: a pure function; any thread may call it.
#pragma once

#include "reigen/schedule/validate.h"
#include "schedule/edges.h"

namespace reigen::schedule {

// Expects a schedule that passed places_of(). Throws InvalidArgument, naming the forward, if there are more activations
// in flight than the options allow.
InFlight in_flight_of(const Schedule& schedule, const ValidateOptions& options);

}  // namespace reigen::schedule
