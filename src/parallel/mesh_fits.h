// Whether a mesh says who divides and who repeats.
#pragma once

#include "reigen/comm/communicator.h"
#include "reigen/parallel/data_parallel_options.h"

namespace reigen::parallel {

// The options have a mesh of axes dp_replicate and dp_shard over all ranks, and a shard.
bool mesh_fits(const DataParallelOptions& options, const Communicator& world);

}  // namespace reigen::parallel
