#include "reigen/optim/ema.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <utility>

#include "base/check.h"
#include "optim/option_checks.h"
#include "optim/passes/blocks.h"
#include "optim/passes/control.h"
#include "optim/passes/device_pass.h"
#include "optim/range_state.h"

namespace reigen::optim {
namespace {

constexpr const char* kEma = "ema";

std::byte* bytes_at(const at::Tensor& flat, std::int64_t element) {
  return static_cast<std::byte*>(flat.data_ptr()) + static_cast<std::size_t>(element) * flat.dtype().itemsize();
}

}  // namespace

struct ExponentialMovingAverage::Impl {
  struct Part {
    ParameterRange range;
    kernels::Layout layout;
    at::Tensor average;
    at::Tensor kept;  // the weights, kept here while the average is swapped in, if the types of the two differ
  };
  EmaOptions options;
  std::vector<Part> parts;
  std::vector<Piece> pieces;  // pieces of this rank's share of all ranges, including the elements between parameters
  at::Tensor updates = at::zeros({}, at::kLong);
  bool swapped = false;

  void require_in_place(const char* what) const {
    REIGEN_CHECK(!swapped,
                 "[ema] cannot {} while weights and average have changed places\n  fix: end the life of what "
                 "swap_in() gave before",
                 what);
  }
  void exchange(Part& part);
  void swap();
  void meet(const char* what) const {
    if (!parts.empty()) parts.front().range.sharing().meet(what);
  }
  bool is_on_gpu() const { return !parts.empty() && parts.front().average.is_cuda(); }
  const kernels::StepControl* control(const DeviceNorm* norm) const {
    return parts.empty() ? nullptr : control_of(norm, parts.front().average.device(), kEma);
  }
  void update_on_gpu(double share, const kernels::StepControl* control) const;
  bool is_divided() const { return !parts.empty() && parts.front().range.is_divided(); }
};

// Exchanges the weights and the average in this rank's share of a range. Both are flat buffers, so the exchange needs
// no loop over parameters. On the CPU the exchange uses a small buffer that fits into the first-level cache.
void ExponentialMovingAverage::Impl::exchange(Part& part) {
  const at::Tensor values = part.range.own_part(part.range.values());
  const at::Tensor average = part.range.own_part(part.average);
  if (values.scalar_type() == average.scalar_type() && values.device().is_cuda()) {
    const at::Tensor weights = values.clone();
    values.copy_(average);
    average.copy_(weights);
  } else if (values.scalar_type() == average.scalar_type()) {
    const std::size_t bytes = values.nbytes();
    auto* a = static_cast<std::byte*>(values.data_ptr());
    auto* b = static_cast<std::byte*>(average.data_ptr());
    std::array<std::byte, 4096> buffer;
    for (std::size_t at = 0; at < bytes; at += buffer.size()) {
      const std::size_t size = std::min(buffer.size(), bytes - at);
      std::memcpy(buffer.data(), a + at, size);
      std::memcpy(a + at, b + at, size);
      std::memcpy(b + at, buffer.data(), size);
    }
  } else if (swapped) {
    values.copy_(part.kept);
    part.kept.reset();
  } else {
    part.kept = values.clone();
    values.copy_(average);
  }
}

void ExponentialMovingAverage::Impl::swap() {
  at::NoGradGuard no_grad;
  meet("weights in use");
  for (Part& part : parts) exchange(part);
  meet("weights and average");
  for (const Part& part : parts) {
    part.range.sharing().publish("weights and average");
    part.range.note_change();
    for (const tensor::Segment& segment : part.range.segments()) {
      segment.parameter.unsafeGetTensorImpl()->bump_version();
    }
  }
  swapped = !swapped;
}

ExponentialMovingAverage::Swapped::Swapped(std::shared_ptr<Impl> impl)
    : impl_(std::move(impl)), exceptions_(std::uncaught_exceptions()) {}

void ExponentialMovingAverage::Swapped::end() {
  if (const auto impl = std::exchange(impl_, nullptr)) impl->swap();
}

ExponentialMovingAverage::Swapped::~Swapped() {
  if (!impl_ || (impl_->is_divided() && std::uncaught_exceptions() > exceptions_)) return;
  try {
    end();
  } catch (...) {
    // A destructor must not throw. end() can fail only if ranks share the weights and their group has ended.
  }
}

ExponentialMovingAverage::ExponentialMovingAverage(std::vector<ParameterRange> parameters, const EmaOptions& options)
    : impl_(std::make_shared<Impl>()) {
  check_below_one(kEma, "decay", options.decay);
  impl_->options = options;
  check_shared_alike(kEma, parameters);
  std::vector<std::int64_t> sizes;
  for (ParameterRange& range : parameters) {
    const kernels::Layout layout = layout_of(kEma, range);
    const bool is_double = layout == kernels::Layout::kFloat64;
    at::Tensor average = range.make_twin(is_double ? at::kDouble : at::kFloat);
    range.own_part(average).copy_(range.own_part(range.values()));
    sizes.push_back(range.end() - range.begin());
    impl_->parts.push_back({std::move(range), layout, std::move(average), {}});
  }
  impl_->pieces = cut(sizes);
  impl_->meet("average of the weights");
}

void ExponentialMovingAverage::update(const DeviceNorm* norm) {
  impl_->require_in_place("update the average");
  const kernels::StepControl* const control = impl_->control(norm);
  auto* updates = impl_->updates.mutable_data_ptr<std::int64_t>();
  const auto t = static_cast<double>(++*updates);
  const EmaOptions& options = impl_->options;
  const double decay = options.warmup ? std::min(options.decay, (1 + t) / (10 + t)) : options.decay;
  if (impl_->is_on_gpu()) {
    impl_->update_on_gpu(1 - decay, control);
    return impl_->meet("average of the weights");
  }
  for_each_piece(impl_->pieces, [&](std::size_t i) {
    const Piece& piece = impl_->pieces[i];
    const Impl::Part& part = impl_->parts[piece.part];
    const std::int64_t first = part.range.begin() + piece.first;
    kernels::kernels().average(part.layout, bytes_at(part.average, first), bytes_at(part.range.values(), first),
                               piece.count, 1 - decay);
  });
  impl_->meet("average of the weights");
}

void ExponentialMovingAverage::Impl::update_on_gpu(double share, const kernels::StepControl* control) const {
  std::vector<DevicePart<kernels::AverageStep>> all;
  for (const Part& part : parts) {
    // For the kernel the average is an optimizer state. The average of 16-bit weights is fp32, so the layout must be
    // one with fp32 states.
    kernels::Layout layout = part.layout;
    if (layout == kernels::Layout::kBfloat16) layout = kernels::Layout::kBfloat16Master;
    if (layout == kernels::Layout::kFloat16) layout = kernels::Layout::kFloat16Master;
    all.push_back({.layout = layout,
                   .block = {.values = bytes_at(part.range.values(), part.range.begin()),
                             .states = {bytes_at(part.average, part.range.begin())},
                             .count = part.range.end() - part.range.begin()},
                   .step = {.share = share}});
  }
  run_on_device(parts.front().average.device(), kernels::Rule::kAverage, all, {.control = control});
}

std::int64_t ExponentialMovingAverage::updates() const { return impl_->updates.item<std::int64_t>(); }

ExponentialMovingAverage::Swapped ExponentialMovingAverage::swap_in() {
  impl_->require_in_place("swap in");
  impl_->swap();
  return Swapped(impl_);
}

std::vector<NamedTensor> ExponentialMovingAverage::state() const {
  impl_->require_in_place("give its state");
  std::vector<NamedTensor> result;
  for (const Impl::Part& part : impl_->parts) {
    for (const tensor::Segment& segment : part.range.segments()) {
      result.push_back(entry_of(part.range, segment, ".ema", part.average));
    }
  }
  result.push_back({"ema.updates", impl_->updates});
  return result;
}

void ExponentialMovingAverage::load_state(const std::vector<NamedTensor>& state) {
  load_entries(kEma, this->state(), state);
}

}  // namespace reigen::optim
