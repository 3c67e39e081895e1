// Says which ranks of a mesh do what in data parallelism: this is decided once, from the options.
// Thread rule: a value.
#pragma once

#include <vector>

#include "parallel/weights/rank_weights.h"
#include "reigen/comm/communicator.h"
#include "reigen/layout/placement.h"
#include "reigen/parallel/data_parallel_options.h"

namespace reigen::parallel {

struct DataRanks {
  RankGroups groups = {};
  std::vector<layout::Axis> axes = {};  // of the layout's grid, outer to inner
  layout::Coordinates here = {};        // this rank's coordinates in it
};

// `world`: the group that the caller passes to data_parallel(). Without a mesh, all its ranks average gradients. With
// tensor parallelism, the ranks along the axes dp_replicate and dp_shard average gradients. If a mesh does not fit
// `world`, data_ranks() takes no notice of the mesh, and require_shard_possible() (check/option_checks.h) reports it.
DataRanks data_ranks(const DataParallelOptions& options, const Communicator& world);

}  // namespace reigen::parallel
