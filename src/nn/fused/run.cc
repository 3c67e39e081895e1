#include "nn/fused/run.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "device/cuda.h"
#include "device/kernels.h"
#include "nn/kernels/host.h"
#include "tensor/calls.h"

namespace reigen::nn::fused {

namespace {

constexpr std::int64_t kElementsOfThread = 32768;  // so many are worth a thread

auto function_of(const device::NormCall&) { return device::kernels().norm; }
auto function_of(const device::NormBackwardCall&) { return device::kernels().norm_backward; }
auto function_of(const device::NormSumsCall&) { return device::kernels().norm_sums; }
auto function_of(const device::BatchStatisticsCall&) { return device::kernels().batch_statistics; }
auto function_of(const device::BatchNormCall&) { return device::kernels().batch_norm; }
auto function_of(const device::BatchNormSumsCall&) { return device::kernels().batch_norm_sums; }
auto function_of(const device::BatchNormBackwardCall&) { return device::kernels().batch_norm_backward; }
auto function_of(const device::CrossEntropyCall&) { return device::kernels().cross_entropy; }
auto function_of(const device::MultiplyCall&) { return device::kernels().multiply; }
auto function_of(const device::GeluCall&) { return device::kernels().gelu; }
auto function_of(const device::GeluBackwardCall&) { return device::kernels().gelu_backward; }
auto function_of(const device::SwigluCall&) { return device::kernels().swiglu; }
auto function_of(const device::SwigluBackwardCall&) { return device::kernels().swiglu_backward; }
auto function_of(const device::RotaryCall&) { return device::kernels().rotary; }
auto function_of(const device::EmbeddingSumsCall&) { return device::kernels().embedding_sums; }

void share(std::int64_t count, std::int64_t elements, const kernels::Part& part) {
  const std::int64_t grain = std::max<std::int64_t>(1, kElementsOfThread / std::max<std::int64_t>(1, elements));
  at::parallel_for(0, count, grain, part);
}

}  // namespace

template <class Call>
void run(const at::Tensor& on, const Call& call) {
  if (on.device().is_cpu()) return kernels::run(call, share);
  const c10::DeviceGuard guard(on.device());
  device::check(function_of(call)(&call, device::handle_of(tensor::stream_of(on))), "a kernel of a layer");
}

template void run(const at::Tensor&, const device::NormCall&);
template void run(const at::Tensor&, const device::NormBackwardCall&);
template void run(const at::Tensor&, const device::NormSumsCall&);
template void run(const at::Tensor&, const device::BatchStatisticsCall&);
template void run(const at::Tensor&, const device::BatchNormCall&);
template void run(const at::Tensor&, const device::BatchNormSumsCall&);
template void run(const at::Tensor&, const device::BatchNormBackwardCall&);
template void run(const at::Tensor&, const device::CrossEntropyCall&);
template void run(const at::Tensor&, const device::MultiplyCall&);
template void run(const at::Tensor&, const device::GeluCall&);
template void run(const at::Tensor&, const device::GeluBackwardCall&);
template void run(const at::Tensor&, const device::SwigluCall&);
template void run(const at::Tensor&, const device::SwigluBackwardCall&);
template void run(const at::Tensor&, const device::RotaryCall&);
template void run(const at::Tensor&, const device::EmbeddingSumsCall&);

int number_of(at::ScalarType wide, at::ScalarType narrow) {
  using device::ModelTypes;
  const auto number = [&] {
    if (wide == at::kDouble) return ModelTypes::kFloat64;
    if (wide == at::kBFloat16) return ModelTypes::kBfloat16;
    if (wide == at::kHalf) return ModelTypes::kFloat16;
    if (narrow == at::kBFloat16) return ModelTypes::kFloat32Bfloat16;
    return narrow == at::kHalf ? ModelTypes::kFloat32Float16 : ModelTypes::kFloat32;
  }();
  REIGEN_ASSERT(have_number(wide, narrow), "no kernels for {} with {}", c10::toString(wide), c10::toString(narrow));
  return static_cast<int>(number);
}

at::ScalarType autocast_type(const at::Tensor& tensor, at::ScalarType type) {
  const c10::DeviceType device = tensor.device().type();
  if (type != at::kFloat || !at::autocast::is_autocast_enabled(device)) return type;
  const at::ScalarType narrow = at::autocast::get_autocast_dtype(device);
  return is_16_bit(narrow) ? narrow : type;
}

void check_tensors(const char* what, std::initializer_list<const at::Tensor*> tensors) {
  const at::Tensor& first = **tensors.begin();
  REIGEN_CHECK(first.defined(), "[{}] a tensor is undefined\n  fix: give the input a value", what);
  REIGEN_CHECK(first.device().is_cpu() || first.device().is_cuda(),
               "[{}] not on this device\n  got: {}   expected: cpu or cuda", what, first.device().str());
  for (const at::Tensor* const tensor : tensors) {
    if (!tensor->defined()) continue;
    REIGEN_CHECK(tensor->device() == first.device(),
                 "[{}] tensors on two devices\n  got: {} and {}   expected: one device\n  fix: tensor.to(device)", what,
                 first.device().str(), tensor->device().str());
    const at::ScalarType type = tensor->scalar_type();
    REIGEN_CHECK(type == at::kDouble || type == at::kFloat || is_16_bit(type),
                 "[{}] not in this type\n  got: {}   expected: Double, Float, BFloat16 or Half\n  fix: tensor.to(type)",
                 what, c10::toString(type));
  }
}

void check_columns(const char* what, const char* name, const at::Tensor& x, const at::Tensor& per_column) {
  REIGEN_CHECK(x.dim() >= 1 && x.size(-1) >= 1,
               "[{}] the input has no last dimension\n  got: [{}]   expected: at least one dimension, of at least 1",
               what, fmt::join(x.sizes(), ","));
  if (!per_column.defined()) return;
  REIGEN_CHECK(per_column.dim() == 1 && per_column.size(0) == x.size(-1),
               "[{}] the {} does not fit the input\n  got: [{}] for an input of [{}]   expected: [{}]", what, name,
               fmt::join(per_column.sizes(), ","), fmt::join(x.sizes(), ","), x.size(-1));
}

}  // namespace reigen::nn::fused
