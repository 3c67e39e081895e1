// Translates the options of section parallel for data_parallel().
#pragma once

#include "reigen/parallel/data_parallel.h"
#include "reigen/train/config.h"

namespace reigen::train {

// parallel.shard auto becomes gradients if the ranks share memory and all options that are set are compatible with it.
// Otherwise it becomes none.
parallel::DataParallelOptions data_parallel_options(const ParallelConfig& config, const Communicator& world);

}  // namespace reigen::train
