// What the generators of schedules share.
// Thread rule: pure functions; any thread may call them.
#pragma once

#include "reigen/schedule/generate.h"

namespace reigen::schedule {

// Throws InvalidArgument if a number is below 1 or too large, or if the schedule has no virtual stages and the size
// has.
void check_size(Name name, const Size& size);

// A schedule without actions, with size.virtual_stages stages on each rank, placed by looped(). Checks the size.
Schedule empty_schedule(Name name, const Size& size);

// The stage of a rank: chunk 0 is its first stage.
inline int stage_of(const Size& size, int rank, int chunk) { return chunk * size.ranks + rank; }

inline Action forward(int stage, int micro_batch) { return {Kind::kForward, stage, micro_batch}; }
inline Action backward(int stage, int micro_batch) { return {Kind::kBackward, stage, micro_batch}; }

}  // namespace reigen::schedule
