// The age of this process.
// Thread rule: no shared state.
#pragma once

namespace reigen::train {

// Seconds since the kernel started this process, to a hundredth of a second.
double process_age_seconds();

}  // namespace reigen::train
