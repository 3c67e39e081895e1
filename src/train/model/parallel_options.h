// Translates the options of section parallel for data_parallel().
#pragma once

#include <c10/core/Device.h>

#include "reigen/parallel/data_parallel.h"
#include "reigen/train/config.h"

namespace reigen::train {

// `device` is the device of the model. parallel.shard auto becomes gradients if the ranks share the memory of the
// model, and if no option requires that gradients are sent in buckets. Otherwise auto becomes none. `world`: the ranks
// that compute on different samples. `has_mesh`: the caller has a mesh, which knows parallel.replicas.
parallel::DataParallelOptions data_parallel_options(const ParallelConfig& config, const Communicator& world,
                                                    const at::Device& device = at::kCPU, bool has_mesh = false);

}  // namespace reigen::train
