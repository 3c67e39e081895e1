// Checks which DataParallelOptions are possible for a group of ranks, and lists the options that must be equal on all
// ranks.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/parallel/data_parallel_options.h"
#include "reigen/parallel/strategy.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

inline constexpr double kLargestBucketMb = 1 << 20;

// Whether the options shard something and give a mesh whose axes dp_replicate and dp_shard cover all ranks.
bool mesh_fits(const DataParallelOptions& options, const Communicator& world);

// Returns the device of the trainable parameters, or the CPU if there are none. Trainable parameters must all be on one
// device (flat_parameters.h). Frozen parameters may be on another device.
at::Device device_of_weights(const torch::nn::Module& module);

// Throws InvalidArgument if stages of several ranks share a weight, and weights are gathered while backward runs
// (`gathers`).
void require_stages_possible(const DataParallelOptions& options, bool gathers);

// Returns one line for each option, for check_equal_on_all_ranks() (model_check.h), which compares the lines between
// ranks. With `module` there are also lines about where its weights lie.
std::vector<std::string> describe_options(const DataParallelOptions& options);
std::vector<std::string> describe_options(const DataParallelOptions& options, const torch::nn::Module& module);

// check_options() and require_shard_possible() throw InvalidArgument for options that are not possible. If the options
// are equal on all ranks, every rank throws. `sharers`: the number of ranks between which tensors are sharded.
void check_options(const DataParallelOptions& options, int sharers);
// Throws if the options choose a kind of sharding that is not possible with the strategy (strategies.h) that they
// choose, or a mesh that does not cover the ranks of `world`. `strategy`: this strategy as text, for the error.
void require_shard_possible(const DataParallelOptions& options, const Communicator& world, const std::string& strategy);

// Throws on every rank if some rank's model is on a GPU and one of these conditions holds: the rank's group does not
// carry the GPU's memory; the options need something that works only on the CPU; another rank of the same process uses
// the same GPU, and their work is not separate (reigen/tensor/gpu_work.h). `strategies`: the strategies that the
// options choose; an entry may be null. Collective.
void require_device_possible(const torch::nn::Module& module, const DataParallelOptions& options,
                             const Communicator& world, const std::vector<const Strategy*>& strategies);

}  // namespace reigen::parallel
