// Translates the options of section parallel for data_parallel().
#pragma once

#include "reigen/parallel/data_parallel.h"
#include "reigen/train/config.h"

namespace reigen::train {

// shard auto becomes gradients if the ranks share memory and no option is set that does not go with it, else none.
parallel::DataParallelOptions data_parallel_options(const ParallelConfig& config, const Communicator& world);

}  // namespace reigen::train
