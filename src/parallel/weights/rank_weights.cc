#include "parallel/weights/rank_weights.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
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

std::vector<tensor::NamedParameter> as_in_layout(const std::vector<tensor::NamedParameter>& own,
                                                 const layout::Layout& layout, const layout::Coordinates& at) {
  std::vector<tensor::NamedParameter> parameters;
  auto next = own.begin();
  for (std::size_t i = 0; i < layout.model().tensors.size(); ++i) {
    const std::string& name = layout.model().tensors[i].name;
    if (!layout.is_of_stage(i, at)) {
      parameters.push_back({name, {}, {}});
      continue;
    }
    REIGEN_ASSERT(next != own.end() && next->name == name, "parameter {} is not at its place", name);
    parameters.push_back(*next++);
  }
  return parameters;
}

// Frozen weights lie in no range unless they are sharded. The layout knows their boxes.
std::vector<tensor::NamedTensor> weights_of(const torch::nn::Module& module, const std::vector<ParameterRange>& ranges,
                                            const layout::Layout& layout, const layout::Coordinates& at) {
  std::vector<tensor::NamedTensor> tensors = tensor::tensors_of(module, ranges);
  for (std::size_t i = 0; i < layout.model().tensors.size(); ++i) {
    if (!layout.placement(i, layout::Role::kValue).has(layout::AlongKind::kShard)) continue;
    const layout::TensorSpec& spec = layout.model().tensors[i];
    for (tensor::NamedTensor& item : tensors) {
      const bool is_it = item.name == spec.name ||
                         std::find(spec.aliases.begin(), spec.aliases.end(), item.name) != spec.aliases.end();
      if (item.part || !is_it) continue;
      item.part = layout.box_of(i, at);
      item.shape = spec.shape;
      item.is_replicated = true;
    }
  }
  return tensors;
}

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
void load_weights(std::vector<tensor::NamedTensor> tensors, const std::vector<ParameterRange>& ranges,
                  RankGroups groups, const checkpoint::Checkpoint& from, std::string_view group,
                  const tensor::IsElsewhere& is_elsewhere) {
  std::set<const at::TensorImpl*> of_others;
  for (const ParameterRange& range : ranges) {
    if (!range.is_common() || groups.sharers.rank() == 0) continue;
    for (const tensor::Segment& segment : range.segments()) of_others.insert(segment.parameter.unsafeGetTensorImpl());
  }
  for (tensor::NamedTensor& item : tensors) {
    if (of_others.contains(item.tensor.unsafeGetTensorImpl())) item.part = nothing_of(item);
  }
  groups.all.barrier({.tag = "before weights of a checkpoint"});  // no rank computes with the old values any more
  comm::attempt(groups.all, "weights of a checkpoint", [&] {
    try {
      tensor::read_into(from, group, tensors, is_elsewhere);
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
