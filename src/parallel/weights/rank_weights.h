// Selects the tensors that each rank gives to a checkpoint of the model, and reads a checkpoint into each rank's
// tensors. Of a tensor that is divided among ranks, each rank of the first replica gives its part. Rank 0 gives all
// other tensors.
// Thread rule: one thread at a time.
#pragma once

#include <string_view>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/comm/communicator.h"
#include "reigen/tensor/parameter_range.h"
#include "reigen/tensor/tensor_files.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

struct RankGroups {
  Communicator world;
  Communicator sharers;          // the ranks between which tensors are divided
  Communicator replicas;         // the ranks that hold the same shares as this rank
  Communicator box_owners = {};  // the ranks that divide dimensions of tensors (tensor parallelism)
};

std::vector<tensor::NamedTensor> given_by_rank(std::vector<tensor::NamedTensor> tensors, const RankGroups& groups);

// Implements DataParallelBase::load().
void load_weights(const torch::nn::Module& module, const std::vector<ParameterRange>& ranges, RankGroups groups,
                  const checkpoint::Checkpoint& from, std::string_view group);

}  // namespace reigen::parallel
