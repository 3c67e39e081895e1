// The reducer's part in checkpoints: what each rank gives, and takes back.
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "comm/agree.h"
#include "parallel/gradient_reducer.h"
#include "reigen/base/error.h"
#include "reigen/tensor/pieces.h"

namespace reigen::parallel {
namespace {

layout::Part nothing_of(const tensor::NamedTensor& item) { return layout::flat_part(item.tensor.sizes().vec(), 0, 0); }

}  // namespace

std::vector<tensor::NamedTensor> GradientReducer::own(std::vector<tensor::NamedTensor> tensors) const {
  std::erase_if(tensors, [&](const tensor::NamedTensor& item) {
    return item.is_divided() ? replicas_.rank() != 0 : world_.rank() != 0;
  });
  return tensors;
}

std::vector<tensor::NamedTensor> GradientReducer::own_weights() const {
  return own(tensor::tensors_of(module_, all_ranges()));
}

// One memory of all is written by the first of them.
void GradientReducer::load(const checkpoint::Checkpoint& from, std::string_view group) {
  std::set<const at::TensorImpl*> of_others;
  for (const ParameterRange& range : all_ranges()) {
    if (!range.is_common() || sharers_.rank() == 0) continue;
    for (const tensor::Segment& segment : range.segments()) of_others.insert(segment.parameter.unsafeGetTensorImpl());
  }
  std::vector<tensor::NamedTensor> tensors = tensor::tensors_of(module_, all_ranges());
  for (tensor::NamedTensor& item : tensors) {
    if (of_others.contains(item.tensor.unsafeGetTensorImpl())) item.part = nothing_of(item);
  }
  world_.barrier({.tag = "before weights of a checkpoint"});  // nobody computes with what there was
  comm::attempt(world_, "weights of a checkpoint", [&] {
    try {
      tensor::read_into(from, group, tensors);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw IoError(error.what());
    }
  });
  for (const ParameterRange& range : all_ranges()) {
    range.sharing().publish("weights of a checkpoint");
    range.sharing().meet("weights of a checkpoint");
    range.note_change();
  }
}

}  // namespace reigen::parallel
