// Checks which DataParallelOptions are possible for a group of ranks, and lists those that must be equal on all ranks.
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

// Whether the options shard something and give a mesh whose axes dp_replicate and dp_shard cover all ranks.
bool mesh_fits(const DataParallelOptions& options, const Communicator& world);

// One line for each option, as check_equal_on_all_ranks() takes them (model_check.h).
std::vector<std::string> describe_options(const DataParallelOptions& options, const torch::nn::Module& module);

// check_options() and require_shard_possible() throw InvalidArgument. If the options are equal on all ranks, every rank
// throws.
void check_options(const DataParallelOptions& options, int sharers);
// `strategy`: the description of the strategy, which the error shows.
void require_shard_possible(const DataParallelOptions& options, const Communicator& world, const std::string& strategy);

}  // namespace reigen::parallel
