// What of the options is possible: asked before the layout is chosen and when they are checked.
#pragma once

#include "reigen/comm/communicator.h"
#include "reigen/parallel/data_parallel_options.h"

namespace reigen::parallel {

inline constexpr double kLargestBucketMb = 1 << 20;

// The options have a mesh of axes dp_replicate and dp_shard over all ranks, and a shard.
bool mesh_fits(const DataParallelOptions& options, const Communicator& world);

}  // namespace reigen::parallel
