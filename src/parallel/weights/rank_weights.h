// Selects the tensors that each rank gives to a checkpoint of the model, and reads a checkpoint into each rank's
// tensors. Of a tensor that is divided among ranks, each rank of the first replica gives its part. Rank 0 gives all
// other tensors.
// Thread rule: one thread at a time.
#pragma once

#include <string_view>
#include <vector>

#include "reigen/checkpoint/checkpoint.h"
#include "reigen/comm/communicator.h"
#include "reigen/layout/layout.h"
#include "reigen/tensor/flat_parameters.h"
#include "reigen/tensor/parameter_range.h"
#include "reigen/tensor/pieces.h"
#include "reigen/tensor/tensor_files.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace reigen::parallel {

struct RankGroups {
  Communicator all;              // all ranks that hold the model
  Communicator world;            // the ranks that compute on different samples
  Communicator sharers;          // the ranks between which tensors are divided
  Communicator replicas;         // the ranks that hold the same shares as this rank
  Communicator box_owners = {};  // the ranks that divide dimensions of tensors (tensor parallelism)
  Communicator stages = {};      // the ranks that hold the stages of the model (pipeline parallelism)
};

// The parameters of this rank, `own`, as the layout's model has them: parameters of other stages are undefined.
std::vector<tensor::NamedParameter> as_in_layout(const std::vector<tensor::NamedParameter>& own,
                                                 const layout::Layout& layout, const layout::Coordinates& at);

// The parameters and buffers of the model, each with the part that the rank at these coordinates has.
std::vector<tensor::NamedTensor> weights_of(const torch::nn::Module& module, const std::vector<ParameterRange>& ranges,
                                            const layout::Layout& layout, const layout::Coordinates& at);

std::vector<tensor::NamedTensor> given_by_rank(std::vector<tensor::NamedTensor> tensors, const RankGroups& groups);

// Implements DataParallelBase::load().
// `tensors`: the parameters and buffers of the model, each with the part that this rank has.
// `is_elsewhere`: whether a tensor of the checkpoint belongs to a stage of another rank; may be empty.
void load_weights(std::vector<tensor::NamedTensor> tensors, const std::vector<ParameterRange>& ranges,
                  RankGroups groups, const checkpoint::Checkpoint& from, std::string_view group,
                  const tensor::IsElsewhere& is_elsewhere = {});

}  // namespace reigen::parallel
