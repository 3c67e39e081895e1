// Translates the options of section parallel for data_parallel().
#pragma once

#include <c10/core/Device.h>

#include "reigen/parallel/data_parallel.h"
#include "reigen/train/config.h"

namespace reigen::train {

// `device`: where the model is. parallel.shard auto becomes gradients if the ranks share this memory and all options
// that are set are compatible with it. Otherwise it becomes none.
parallel::DataParallelOptions data_parallel_options(const ParallelConfig& config, const Communicator& world,
                                                    const at::Device& device = at::kCPU);

}  // namespace reigen::train
