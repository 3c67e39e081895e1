// Which DataParallelOptions are possible here, and which of them all ranks must have in common.
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

// Whether the options have a shard, and a mesh of axes dp_replicate and dp_shard over all ranks.
bool mesh_fits(const DataParallelOptions& options, const Communicator& world);

// One line for each option, as check_equal_on_all_ranks() takes them (model_check.h).
std::vector<std::string> describe_options(const DataParallelOptions& options, const torch::nn::Module& module);

// Both functions throw InvalidArgument: on every rank alike, if the options are equal on all ranks.
void check_options(const DataParallelOptions& options, int sharers);
// `strategy`: its description, for the error.
void require_shard_possible(const DataParallelOptions& options, const Communicator& world, const std::string& strategy);

}  // namespace reigen::parallel
