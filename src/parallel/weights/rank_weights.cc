#include "parallel/weights/rank_weights.h"

#include <torch/nn/module.h>

#include <set>
#include <string>

#include "comm/agree.h"
#include "reigen/base/error.h"
#include "reigen/tensor/pieces.h"

namespace reigen::parallel {
namespace {

layout::Part nothing_of(const tensor::NamedTensor& item) {
  layout::Part part = item.part.value_or(layout::whole(item.tensor.sizes().vec()));
  part.first = part.count = 0;
  return part;
}

}  // namespace

std::vector<tensor::NamedTensor> given_by_rank(std::vector<tensor::NamedTensor> tensors, const RankGroups& groups) {
  std::erase_if(tensors, [&](const tensor::NamedTensor& item) {
    const bool is_whole = item.shape.empty();  // the ranks that divide dimensions of other tensors have the same of it
    if (is_whole && groups.box_owners.rank() != 0) return true;
    const bool is_share = item.is_divided() && !item.is_replicated;
    return (is_share ? groups.replicas : groups.world).rank() != 0;
  });
  return tensors;
}

// If ranks share one copy of the weights, only the first of these ranks writes the checkpoint's values to it.
void load_weights(const torch::nn::Module& module, const std::vector<ParameterRange>& ranges, RankGroups groups,
                  const checkpoint::Checkpoint& from, std::string_view group) {
  std::set<const at::TensorImpl*> of_others;
  for (const ParameterRange& range : ranges) {
    if (!range.is_common() || groups.sharers.rank() == 0) continue;
    for (const tensor::Segment& segment : range.segments()) of_others.insert(segment.parameter.unsafeGetTensorImpl());
  }
  std::vector<tensor::NamedTensor> tensors = tensor::tensors_of(module, ranges);
  for (tensor::NamedTensor& item : tensors) {
    if (of_others.contains(item.tensor.unsafeGetTensorImpl())) item.part = nothing_of(item);
  }
  groups.world.barrier({.tag = "before weights of a checkpoint"});  // no rank computes with the old values any more
  comm::attempt(groups.world, "weights of a checkpoint", [&] {
    try {
      tensor::read_into(from, group, tensors);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw IoError(error.what());
    }
  });
  for (const ParameterRange& range : ranges) {
    range.sharing().publish("weights of a checkpoint");
    range.sharing().meet("weights of a checkpoint");
    range.note_change();
  }
}

}  // namespace reigen::parallel
