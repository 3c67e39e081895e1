// The section parallel as options of data_parallel().
#pragma once

#include "reigen/parallel/data_parallel.h"
#include "reigen/train/config.h"

namespace reigen::train {

// With shard auto: gradients, where ranks share memory and nothing is set that it does not go together with.
parallel::DataParallelOptions data_parallel_options(const ParallelConfig& config, const Communicator& world);

}  // namespace reigen::train
