// Times every algorithm of every operation at a few sizes, and fits a line of time over bytes for each algorithm.
// Thread rule: every rank of the job calls probe() once.
#pragma once

#include "comm/tuning/table.h"
#include "tune/options.h"

namespace reigen::apps::tune {

// Collective. The tables of all ranks are equal, except for the host's name.
comm::tuning::Table probe(const TuneOptions& options);

// Bytes of memory that a rank needs for probe().
std::size_t memory_of_probe();

}  // namespace reigen::apps::tune
