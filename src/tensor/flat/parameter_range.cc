#include "reigen/tensor/parameter_range.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "comm/reduce/reduce.h"
#include "tensor/flat/gradient_rows.h"
#include "tensor/flat/gradient_share.h"
#include "tensor/memory/memory_resource.h"

namespace reigen::tensor {
namespace {

std::string shape_text(at::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

bool is_plain_copy(const at::Tensor& from, const at::Tensor& to) {
  return from.layout() == at::kStrided && from.is_contiguous() && from.scalar_type() == to.scalar_type() &&
         from.device() == to.device() && !from.is_conj() && !from.is_neg();
}

}  // namespace

ParameterRange::ParameterRange(Memory memory, std::vector<Segment> segments) : end_(memory.values.numel()) {
  if (!memory.sharing) memory.sharing = std::make_shared<RangeValues>(std::nullopt);
  if (!memory.resource) memory.resource = std::make_shared<MemoryResource>(Communicator(), std::filesystem::path());
  memory_ = std::make_shared<const Memory>(std::move(memory));
  if (const std::optional<Shares>& shares = sharing().shares()) {
    begin_ = shares->begin();
    end_ = shares->end();
  }
  auto slots = std::make_shared<std::vector<at::Tensor>>();
  slots->reserve(segments.size());
  const at::Tensor& flat = gradient_flat();
  for (const Segment& segment : segments) {
    REIGEN_ASSERT(segment.offset >= 0 && segment.offset + segment.numel < gradients().numel(),
                  "segment {} ends at {} of {}", segment.name, segment.offset + segment.numel, gradients().numel());
    // The slots, which are the places of the gradients, are detached, because Optimizer::zero_grad(false) refuses
    // gradients that are autograd views.
    slots->push_back(flat.narrow(0, segment.offset, segment.numel).view(segment.shape).detach());
    if (share()) share()->add_mark(segment.shape);
  }
  segments_ = std::make_shared<const std::vector<Segment>>(std::move(segments));
  slots_ = std::move(slots);
}

std::int64_t ParameterRange::numel() const {
  std::int64_t sum = 0;
  for (const Segment& segment : *segments_) sum += segment.numel;
  return sum;
}

layout::Part ParameterRange::part_of(const Segment& segment) const {
  const auto within = [&](std::int64_t element) {
    return std::clamp(element - segment.offset, std::int64_t{0}, segment.numel);
  };
  layout::Part part = segment.box ? segment.box->part : layout::whole(segment.shape);
  part.first = within(begin_);
  part.count = within(end_) - part.first;
  return part;
}

at::Tensor ParameterRange::make_twin(at::ScalarType type) const {
  return resource().take(
      layout::Role::kState,
      {.count = values().numel(), .type = type, .residence = memory_->states, .first = begin_, .last = end_});
}

bool ParameterRange::is_active(std::size_t segment) const { return (*segments_)[segment].parameter.grad().defined(); }

bool ParameterRange::is_in_place(std::size_t segment) const {
  const at::Tensor& gradient = (*segments_)[segment].parameter.grad();
  const at::Tensor& slot = (*slots_)[segment];
  if (!gradient.defined()) return false;
  if (gradient.unsafeGetTensorImpl() == slot.unsafeGetTensorImpl()) return true;
  if (share() && !share()->made().is_there()) return false;
  // data_ptr() of a sparse tensor throws, so the layout is checked first.
  return gradient.layout() == at::kStrided && gradient.is_alias_of(slot) && gradient.data_ptr() == slot.data_ptr() &&
         gradient.scalar_type() == slot.scalar_type() && gradient.sizes() == slot.sizes() &&
         gradient.strides() == slot.strides() && !gradient.requires_grad();
}

const at::Tensor& ParameterRange::gradient_flat() const { return share() ? share()->made().tensor() : gradients(); }

void ParameterRange::gather_gradient(std::size_t segment) const {
  const Segment& place = (*segments_)[segment];
  at::Tensor& gradient = place.parameter.mutable_grad();
  if (!gradient.defined() || (share() && share()->is_marked(segment, gradient)) || is_in_place(segment)) return;
  const at::Tensor& slot = (*slots_)[segment];
  if (gradient.sizes() != slot.sizes()) {
    throw InvalidArgument(Report{.what = fmt::format("[tensor] the gradient of {} has another shape", place.name),
                                 .got = shape_text(gradient.sizes()),
                                 .expected = shape_text(slot.sizes()),
                                 .fix = "assign gradients of the parameter's shape"});
  }
  at::NoGradGuard no_grad;
  if (rows() && rows()->outgrows_caches() && is_plain_copy(gradient, slot)) {
    comm::reduce::copy_streaming(static_cast<std::byte*>(slot.mutable_data_ptr()),
                                 static_cast<const std::byte*>(gradient.const_data_ptr()), slot.nbytes());
  } else {
    slot.copy_(gradient.layout() == at::kStrided ? gradient : gradient.to_dense());
  }
  gradient = slot;
}

void ParameterRange::take_gradient(std::size_t segment) const {
  at::Tensor& gradient = (*segments_)[segment].parameter.mutable_grad();
  if (!gradient.defined() || (share() && share()->is_marked(segment, gradient)) || is_in_place(segment)) return;
  at::Tensor& slot = (*slots_)[segment];
  const std::shared_ptr<SpareBlocks> spares = rows() ? rows()->spares() : nullptr;
  if (!spares || !spares->hold(gradient) || gradient.sizes() != slot.sizes()) return gather_gradient(segment);
  slot = spares->exchange(gradient, slot);
  gradient = slot;
}

void ParameterRange::gather_gradients() const {
  for (std::size_t i = 0; i < size(); ++i) gather_gradient(i);
}

void ParameterRange::drop_gradients() const {
  for (const Segment& segment : *segments_) segment.parameter.mutable_grad().reset();
}

}  // namespace reigen::tensor
