// Times every algorithm of every operation at a handful of sizes and draws a line through each. Thread rule: every rank
// of the job calls it once.
#pragma once

#include "comm/tuning/table.h"
#include "tune/options.h"

namespace reigen::apps::tune {

// Collective. The same table on every rank, but for the host.
comm::tuning::Table probe(const TuneOptions& options);

// Bytes that a rank needs for it.
std::size_t memory_of_probe();

}  // namespace reigen::apps::tune
