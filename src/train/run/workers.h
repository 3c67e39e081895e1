// The threads that make this rank's samples (--data.workers).
// Thread rule: used only by the thread of its rank.
#pragma once

#include "data/loading/prefetcher.h"
#include "train/run/run.h"

namespace reigen::train {

// With "auto": one, and more while a step waits for its batch, up to the rank's share of the machine's cores without
// the one that trains. (Where the CPU trains, its threads have little to do while a step waits.)
data::Workers workers_of(const Run& run);

}  // namespace reigen::train
