#include "reigen/tensor/parameter_range.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <sstream>
#include <utility>

#include "base/check.h"

namespace reigen::tensor {
namespace {

std::string shape_text(at::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

}  // namespace

ParameterRange::ParameterRange(at::Tensor values, at::Tensor gradients, std::vector<Segment> segments)
    : values_(std::move(values)), gradients_(std::move(gradients)) {
  auto slots = std::make_shared<std::vector<at::Tensor>>();
  slots->reserve(segments.size());
  for (const Segment& segment : segments) {
    REIGEN_ASSERT(segment.offset >= 0 && segment.offset + segment.numel < gradients_.numel(),
                  "segment {} ends at {} of {}", segment.name, segment.offset + segment.numel, gradients_.numel());
    // Detached: Optimizer::zero_grad(false) refuses gradients that are autograd views.
    slots->push_back(gradients_.narrow(0, segment.offset, segment.numel).view(segment.shape).detach());
  }
  segments_ = std::make_shared<const std::vector<Segment>>(std::move(segments));
  slots_ = std::move(slots);
}

std::int64_t ParameterRange::numel() const {
  std::int64_t sum = 0;
  for (const Segment& segment : *segments_) sum += segment.numel;
  return sum;
}

bool ParameterRange::is_active(std::size_t segment) const { return (*segments_)[segment].parameter.grad().defined(); }

bool ParameterRange::is_in_place(std::size_t segment) const {
  const at::Tensor& gradient = (*segments_)[segment].parameter.grad();
  const at::Tensor& slot = (*slots_)[segment];
  if (!gradient.defined()) return false;
  if (gradient.unsafeGetTensorImpl() == slot.unsafeGetTensorImpl()) return true;
  // data_ptr() of a sparse tensor throws, so the layout is asked first.
  return gradient.layout() == at::kStrided && gradient.is_alias_of(slot) && gradient.data_ptr() == slot.data_ptr() &&
         gradient.scalar_type() == slot.scalar_type() && gradient.sizes() == slot.sizes() &&
         gradient.strides() == slot.strides() && !gradient.requires_grad();
}

void ParameterRange::gather_gradient(std::size_t segment) const {
  const Segment& place = (*segments_)[segment];
  at::Tensor& gradient = place.parameter.mutable_grad();
  if (!gradient.defined() || is_in_place(segment)) return;
  const at::Tensor& slot = (*slots_)[segment];
  if (gradient.sizes() != slot.sizes()) {
    throw InvalidArgument(Report{.what = fmt::format("[tensor] the gradient of {} has another shape", place.name),
                                 .got = shape_text(gradient.sizes()),
                                 .expected = shape_text(slot.sizes()),
                                 .fix = "assign gradients of the parameter's shape"});
  }
  at::NoGradGuard no_grad;
  slot.copy_(gradient.layout() == at::kStrided ? gradient : gradient.to_dense());
  gradient = slot;
}

void ParameterRange::gather_gradients() const {
  for (std::size_t i = 0; i < size(); ++i) gather_gradient(i);
}

void ParameterRange::drop_gradients() const {
  for (const Segment& segment : *segments_) segment.parameter.mutable_grad().reset();
}

}  // namespace reigen::tensor
