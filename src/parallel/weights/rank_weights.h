// What each rank gives to a checkpoint of the model, and takes from one.
//   given by a rank = of what ranks divide its part, if it is of the first replica; of the rest rank 0 all
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
  Communicator sharers;   // who divide
  Communicator replicas;  // who hold the same shares
};

std::vector<tensor::NamedTensor> given_by_rank(std::vector<tensor::NamedTensor> tensors, const RankGroups& groups);

// DataParallelBase::load().
void load_weights(const torch::nn::Module& module, const std::vector<ParameterRange>& ranges, RankGroups groups,
                  const checkpoint::Checkpoint& from, std::string_view group);

}  // namespace reigen::parallel
