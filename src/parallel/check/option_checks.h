// What of DataParallelOptions is possible here, and what of them all ranks must have in common.
#pragma once

#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/parallel/data_parallel_options.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

inline constexpr double kLargestBucketMb = 1 << 20;

// The options have a mesh of axes dp_replicate and dp_shard over all ranks, and a shard.
bool mesh_fits(const DataParallelOptions& options, const Communicator& world);

// One line an option, in model_check.h's form.
std::vector<std::string> describe_options(const DataParallelOptions& options, const torch::nn::Module& module);

// Both throw InvalidArgument, on every rank alike where the options are equal.
void check_options(const DataParallelOptions& options, int sharers);
// `strategy`: its description.
void require_shard_possible(const DataParallelOptions& options, const Communicator& world, const std::string& strategy);

}  // namespace reigen::parallel
