#include "reigen/tensor/parameter_range.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>
#include <utility>

#include "base/cache_size.h"
#include "base/check.h"
#include "comm/reduce/reduce.h"
#include "reigen/format/hash.h"
#include "reigen/tensor/data_type.h"
#include "tensor/disk_tensor.h"
#include "tensor/shared_tensor.h"
#include "tensor/spare_blocks.h"
#include "tensor/transient_flat.h"

namespace reigen::tensor {
namespace {

std::string shape_text(at::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

// Of the first cache line of every parameter: a step changes some of them.
std::uint64_t digest_of_begins(const ParameterRange& range) {
  constexpr std::size_t kLine = 64;
  const auto* const values = static_cast<const std::byte*>(range.values().const_data_ptr());
  const auto size = static_cast<std::size_t>(range.values().element_size());
  std::uint64_t digest = 0;
  for (const tensor::Segment& segment : range.segments()) {
    const std::size_t bytes = std::min(kLine, static_cast<std::size_t>(segment.numel) * size);
    digest = digest * 31 + format::hash64(values + static_cast<std::size_t>(segment.offset) * size, bytes);
  }
  return digest;
}

// Rows of all ranks that the caches do not hold until the step reads them: a plain store would read its line first.
bool outgrows_caches(const at::Tensor& rows) {
  static const std::size_t kCaches = base::last_level_cache_bytes();
  return rows.nbytes() >= kCaches;
}

bool is_plain_copy(const at::Tensor& from, const at::Tensor& to) {
  return from.layout() == at::kStrided && from.is_contiguous() && from.scalar_type() == to.scalar_type() &&
         from.device() == to.device() && !from.is_conj() && !from.is_neg();
}

}  // namespace

ParameterRange::ParameterRange(at::Tensor values, at::Tensor gradients, std::vector<Segment> segments, Share share)
    : values_(std::move(values)), gradients_(std::move(gradients)) {
  share.end = std::min(share.end, values_.numel());
  share_ = std::make_shared<const Share>(std::move(share));
  auto slots = std::make_shared<std::vector<at::Tensor>>();
  slots->reserve(segments.size());
  auto marks = std::make_shared<std::vector<at::Tensor>>();
  const at::Tensor& flat = gradient_flat();
  for (const Segment& segment : segments) {
    REIGEN_ASSERT(segment.offset >= 0 && segment.offset + segment.numel < gradients_.numel(),
                  "segment {} ends at {} of {}", segment.name, segment.offset + segment.numel, gradients_.numel());
    // Detached: Optimizer::zero_grad(false) refuses gradients that are autograd views.
    slots->push_back(flat.narrow(0, segment.offset, segment.numel).view(segment.shape).detach());
    if (share_->made) marks->push_back(at::full({}, NAN, flat.options()).expand(segment.shape).detach());
  }
  marks_ = std::move(marks);
  segments_ = std::make_shared<const std::vector<Segment>>(std::move(segments));
  slots_ = std::move(slots);
  places_ = std::make_shared<std::vector<std::int64_t>>();
  const std::int64_t rows = share_->gradients.defined() ? share_->gradients.size(0) : 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (const Segment& segment : *segments_) places_->push_back(segment.offset);
  }
}

std::int64_t ParameterRange::numel() const {
  std::int64_t sum = 0;
  for (const Segment& segment : *segments_) sum += segment.numel;
  return sum;
}

std::vector<std::size_t> ParameterRange::share_sizes() const {
  std::vector<std::size_t> sizes;
  for (std::size_t q = 0; q + 1 < share_->bounds.size(); ++q) {
    sizes.push_back(static_cast<std::size_t>(share_->bounds[q + 1] - share_->bounds[q]));
  }
  return sizes;
}

Held ParameterRange::held(const Segment& segment) const {
  const auto within = [&](std::int64_t element) {
    return std::clamp(element - segment.offset, std::int64_t{0}, segment.numel);
  };
  return {.first = within(share_->begin), .last = within(share_->end)};
}

at::Tensor ParameterRange::own_part(const at::Tensor& flat) const {
  return flat.narrow(0, share_->begin, share_->end - share_->begin);
}

at::Tensor ParameterRange::make_twin(at::ScalarType type) const {
  const std::filesystem::path& offload = share_->offload;
  if (is_common()) {
    Communicator ranks = *share_->ranks;
    if (!offload.empty()) return common_disk_tensor(ranks, values_.numel(), type, offload);
    return common_tensor(ranks, values_.numel(), type);
  }
  if (!offload.empty()) return disk_tensor(values_.numel(), type, offload, share_->begin, share_->end);
  return is_divided() ? lazy_tensor(values_.numel(), type) : at::zeros({values_.numel()}, type);
}

void ParameterRange::meet(const char* what) const {
  if (is_common()) exchange([what](Communicator& ranks) { ranks.barrier({.tag = what}); });
}

void ParameterRange::exchange(const std::function<void(Communicator& ranks)>& calls) const {
  if (!is_divided()) return;
  Communicator ranks = *share_->ranks;
  const auto begin = std::chrono::steady_clock::now();
  calls(ranks);
  *seconds_met_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void ParameterRange::give_share(const char* what) const {
  if (share_->whole) share_->whole->forget();
  if (share_->values != Values::kExchanged) return;
  exchange([&](Communicator& ranks) {
    ranks.all_gather_v(own_part(values_).const_data_ptr(), values_.mutable_data_ptr(), share_sizes(),
                       to_data_type(values_.scalar_type()), {.tag = what});
  });
}

std::int64_t ParameterRange::gradient_place(std::size_t segment) const {
  return (*slots_)[segment].storage_offset() - gradients_.storage_offset();
}

void ParameterRange::set_gradient_places(std::vector<std::int64_t> places) const {
  REIGEN_ASSERT(places.size() == places_->size(), "{} places for {}", places.size(), places_->size());
  *places_ = std::move(places);
}

void ParameterRange::average_into(std::size_t segment, std::int64_t first, std::int64_t count, void* mean) const {
  const at::Tensor& rows = share_->gradients;
  const std::int64_t flat = (*segments_)[segment].offset + first;
  REIGEN_ASSERT(rows.defined() && flat >= share_->begin && flat + count <= share_->end,
                "elements {} to {} are not of the share {} to {}", flat, flat + count, share_->begin, share_->end);
  REIGEN_ASSERT((*places_)[static_cast<std::size_t>(share_->ranks->rank()) * segments_->size() + segment] ==
                    gradient_place(segment),
                "the gradient of {} has left the place that was told", (*segments_)[segment].name);
  const auto size = static_cast<std::size_t>(rows.element_size());
  const auto* const data = static_cast<const std::byte*>(rows.const_data_ptr());
  std::vector<const std::byte*> inputs;
  for (std::int64_t row = 0; row < rows.size(0); ++row) {
    const std::int64_t place = (*places_)[static_cast<std::size_t>(row) * segments_->size() + segment];
    inputs.push_back(data + static_cast<std::size_t>(row * rows.size(1) + place + first) * size);
  }
  auto* const output = static_cast<std::byte*>(mean);
  comm::reduce::run({.inputs = inputs.data(),
                     .outputs = &output,
                     .input_count = static_cast<int>(inputs.size()),
                     .output_count = 1,
                     .count = static_cast<std::size_t>(count),
                     .type = to_data_type(rows.scalar_type()),
                     .op = ReduceOp::kAvg});
}

void ParameterRange::average(std::size_t segment, std::int64_t first, std::int64_t count) const {
  auto* const slot = static_cast<std::byte*>((*slots_)[segment].mutable_data_ptr());
  average_into(segment, first, count, slot + first * gradients_.element_size());
}

void ParameterRange::note_change() const {
  if (is_common()) *left_as_ = digest_of_begins(*this);
}

bool ParameterRange::is_as_left() const { return !is_common() || digest_of_begins(*this) == *left_as_; }

bool ParameterRange::is_active(std::size_t segment) const { return (*segments_)[segment].parameter.grad().defined(); }

bool ParameterRange::is_in_place(std::size_t segment) const {
  const at::Tensor& gradient = (*segments_)[segment].parameter.grad();
  const at::Tensor& slot = (*slots_)[segment];
  if (!gradient.defined()) return false;
  if (gradient.unsafeGetTensorImpl() == slot.unsafeGetTensorImpl()) return true;
  if (share_->made && !share_->made->is_there()) return false;
  // data_ptr() of a sparse tensor throws, so the layout is asked first.
  return gradient.layout() == at::kStrided && gradient.is_alias_of(slot) && gradient.data_ptr() == slot.data_ptr() &&
         gradient.scalar_type() == slot.scalar_type() && gradient.sizes() == slot.sizes() &&
         gradient.strides() == slot.strides() && !gradient.requires_grad();
}

bool ParameterRange::is_kept(std::size_t segment) const {
  const at::Tensor& gradient = (*segments_)[segment].parameter.grad();
  return share_->made && gradient.defined() &&
         gradient.unsafeGetTensorImpl() == (*marks_)[segment].unsafeGetTensorImpl();
}

void ParameterRange::keep_gradient(std::size_t segment) const {
  (*segments_)[segment].parameter.mutable_grad() = (*marks_)[segment];
}

bool ParameterRange::take_back(std::size_t segment) const {
  if (!is_kept(segment)) return false;
  (*segments_)[segment].parameter.mutable_grad().reset();
  // Who zeroes gradients in place is refused by LibTorch, where many elements are one; where there is one it is done.
  at::Tensor mark = (*marks_)[segment];
  const bool was_zeroed = mark.numel() == 1 && !std::isnan(mark.item<double>());
  if (was_zeroed) mark.fill_(NAN);
  return !was_zeroed;
}

const at::Tensor& ParameterRange::gradient_flat() const { return share_->made ? share_->made->tensor() : gradients_; }

void ParameterRange::gather_gradient(std::size_t segment) const {
  const Segment& place = (*segments_)[segment];
  at::Tensor& gradient = place.parameter.mutable_grad();
  if (!gradient.defined() || is_kept(segment) || is_in_place(segment)) return;
  const at::Tensor& slot = (*slots_)[segment];
  if (gradient.sizes() != slot.sizes()) {
    throw InvalidArgument(Report{.what = fmt::format("[tensor] the gradient of {} has another shape", place.name),
                                 .got = shape_text(gradient.sizes()),
                                 .expected = shape_text(slot.sizes()),
                                 .fix = "assign gradients of the parameter's shape"});
  }
  at::NoGradGuard no_grad;
  if (share_->gradients.defined() && outgrows_caches(share_->gradients) && is_plain_copy(gradient, slot)) {
    comm::reduce::copy_streaming(static_cast<std::byte*>(slot.mutable_data_ptr()),
                                 static_cast<const std::byte*>(gradient.const_data_ptr()), slot.nbytes());
  } else {
    slot.copy_(gradient.layout() == at::kStrided ? gradient : gradient.to_dense());
  }
  gradient = slot;
}

void ParameterRange::take_gradient(std::size_t segment) const {
  at::Tensor& gradient = (*segments_)[segment].parameter.mutable_grad();
  if (!gradient.defined() || is_kept(segment) || is_in_place(segment)) return;
  at::Tensor& slot = (*slots_)[segment];
  if (!share_->spares || !share_->spares->hold(gradient) || gradient.sizes() != slot.sizes()) {
    return gather_gradient(segment);
  }
  slot = share_->spares->exchange(gradient, slot);
  gradient = slot;
}

void ParameterRange::gather_gradients() const {
  for (std::size_t i = 0; i < size(); ++i) gather_gradient(i);
}

void ParameterRange::drop_gradients() const {
  for (const Segment& segment : *segments_) segment.parameter.mutable_grad().reset();
}

}  // namespace reigen::tensor
