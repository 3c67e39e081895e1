#include "reigen/nn/batch_norm.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <optional>

#include "base/check.h"
#include "nn/fused/once.h"
#include "nn/fused/run.h"
#include "tensor/hooks/taken_over.h"

namespace reigen::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The kernels see a table whose rows are pixels and whose columns are channels.
at::Tensor channels_last(const at::Tensor& x) {
  return x.contiguous(x.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
}
std::int64_t channels_of(const at::Tensor& x) { return x.size(1); }
std::int64_t values_of_channel(const at::Tensor& x) { return x.numel() / x.size(1); }

struct BatchMoments {
  at::Tensor mean;
  at::Tensor rstd;
};

// The statistics of the batch, which also change the running ones.
BatchMoments of_batch(const at::Tensor& x, const BatchNormTensors& tensors, const BatchNormOptions& options,
                      at::ScalarType wide) {
  const std::int64_t rows = values_of_channel(x);
  const std::int64_t columns = channels_of(x);
  const at::TensorOptions computed = x.options().dtype(fused::computed(wide));
  const BatchMoments result{.mean = at::empty({columns}, computed), .rstd = at::empty({columns}, computed)};
  const at::Tensor parts = at::empty({2, device::batch_sums_of(rows), columns}, computed);
  fused::run(x, device::BatchStatisticsCall{.input = fused::address(x),
                                            .parts = fused::target(parts),
                                            .mean = fused::target(result.mean),
                                            .rstd = fused::target(result.rstd),
                                            .running_mean = fused::target(tensors.running_mean),
                                            .running_var = fused::target(tensors.running_var),
                                            .rows = rows,
                                            .columns = columns,
                                            .momentum = options.momentum,
                                            .eps = options.eps,
                                            .types = fused::number_of(wide, x.scalar_type())});
  return result;
}

BatchMoments of_running(const BatchNormTensors& tensors, double eps, at::ScalarType wide) {
  const at::ScalarType computed = fused::computed(wide);
  // A copy, because backward must find both as they are now. Not rsqrt, which rounds otherwise on a GPU.
  return {.mean = tensors.running_mean.to(computed, /*non_blocking=*/false, /*copy=*/true),
          .rstd = (tensors.running_var.to(computed) + eps).sqrt().reciprocal()};
}

// The tensors of a backward.
struct BatchSaved {
  at::Tensor x;
  at::Tensor output;  // only with a residual and ReLU
  at::Tensor weight;
  at::Tensor bias;
  BatchMoments of;
};

// The arguments besides the tensors.
struct BatchHow {
  bool relu;
  bool training;
  at::ScalarType wide;
};

struct BatchGradients {
  at::Tensor x;
  at::Tensor residual;
  at::Tensor weight;  // computed type
  at::Tensor bias;    // computed type
};

BatchGradients batch_gradients(const BatchSaved& saved, const at::Tensor& given, const BatchHow& how,
                               bool of_residual) {
  const at::Tensor of_output = channels_last(given);
  const std::int64_t rows = values_of_channel(saved.x);
  const std::int64_t columns = channels_of(saved.x);
  const at::TensorOptions computed = saved.of.mean.options();
  const int types = fused::number_of(how.wide, saved.x.scalar_type());
  const at::Tensor parts = at::empty({2, device::batch_sums_of(rows), columns}, computed);
  // Without ReLU the gradient of the residual is that of the output.
  const bool is_masked = of_residual && how.relu;
  BatchGradients result{.x = at::empty_like(saved.x),
                        .residual = is_masked ? at::empty_like(saved.x) : at::Tensor(),
                        .weight = at::empty({columns}, computed),
                        .bias = at::empty({columns}, computed)};
  if (rows == 0) {  // its tensors have no addresses
    result.weight.zero_();
    result.bias.zero_();
    if (of_residual) result.residual = at::empty_like(saved.x);
    return result;
  }
  fused::run(saved.x, device::BatchNormSumsCall{.of_output = fused::address(of_output),
                                                .input = fused::address(saved.x),
                                                .output = fused::address(saved.output),
                                                .weight = fused::address(saved.weight),
                                                .bias = fused::address(saved.bias),
                                                .mean = fused::address(saved.of.mean),
                                                .rstd = fused::address(saved.of.rstd),
                                                .of_residual = fused::target(result.residual),
                                                .parts = fused::target(parts),
                                                .of_weight = fused::target(result.weight),
                                                .of_bias = fused::target(result.bias),
                                                .rows = rows,
                                                .columns = columns,
                                                .relu = how.relu,
                                                .types = types});
  if (of_residual && !is_masked) result.residual = of_output;
  fused::run(saved.x,
             device::BatchNormBackwardCall{.of_output = fused::address(of_residual ? result.residual : of_output),
                                           .input = fused::address(saved.x),
                                           .weight = fused::address(saved.weight),
                                           .bias = fused::address(saved.bias),
                                           .mean = fused::address(saved.of.mean),
                                           .rstd = fused::address(saved.of.rstd),
                                           .of_weight = how.training ? fused::address(result.weight) : nullptr,
                                           .of_bias = how.training ? fused::address(result.bias) : nullptr,
                                           .of_input = fused::target(result.x),
                                           .rows = rows,
                                           .columns = columns,
                                           .relu = how.relu && !of_residual,
                                           .types = types});
  return result;
}

// x and the residual are tables without gaps. The tensors are optional, because apply() takes no undefined tensor.
struct BatchNorm : torch::autograd::Function<BatchNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& residual,
                            const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                            const BatchMoments& of, const BatchHow& how) {
    const at::Tensor w = weight ? weight->contiguous() : at::Tensor();
    const at::Tensor b = bias ? bias->contiguous() : at::Tensor();
    const at::Tensor output = at::empty_like(x);
    if (x.numel() > 0) {
      fused::run(x, device::BatchNormCall{.input = fused::address(x),
                                          .residual = residual ? fused::address(*residual) : nullptr,
                                          .weight = fused::address(w),
                                          .bias = fused::address(b),
                                          .mean = fused::address(of.mean),
                                          .rstd = fused::address(of.rstd),
                                          .output = fused::target(output),
                                          .rows = values_of_channel(x),
                                          .columns = channels_of(x),
                                          .relu = how.relu,
                                          .types = fused::number_of(how.wide, x.scalar_type())});
    }
    context->save_for_backward({x, residual && how.relu ? output : at::Tensor(), weight.value_or(at::Tensor()),
                                bias.value_or(at::Tensor()), of.mean, of.rstd});
    context->saved_data["relu"] = how.relu;
    context->saved_data["training"] = how.training;
    context->saved_data["wide"] = static_cast<std::int64_t>(how.wide);
    context->saved_data["residual"] = residual.has_value();
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& given) {
    const variable_list kept = context->get_saved_variables();
    const BatchHow how{.relu = context->saved_data["relu"].toBool(),
                       .training = context->saved_data["training"].toBool(),
                       .wide = static_cast<at::ScalarType>(context->saved_data["wide"].toInt())};
    variable_list result(6);  // of x, residual, weight, bias; the statistics and `how` have none
    const bool creates_graph = at::GradMode::is_enabled();
    {
      const at::NoGradGuard no_grad;
      const auto whole = [](const at::Tensor& one) { return one.defined() ? one.contiguous() : one; };
      const BatchSaved saved{kept[0], kept[1], whole(kept[2]), whole(kept[3]), {kept[4], kept[5]}};
      const BatchGradients of = batch_gradients(saved, given[0], how, context->saved_data["residual"].toBool());
      result[0] = of.x;
      // The caller's gradient itself may be the residual's. With create_graph the result gets a history, which the
      // caller's gradient must not get. Otherwise an alias would let autograd add to the caller's memory.
      const bool is_given = of.residual.is_same(given[0]);
      result[1] = is_given && creates_graph ? at::alias(of.residual) : of.residual;
      if (kept[2].defined()) result[2] = of.weight.to(kept[2].scalar_type());
      if (kept[3].defined()) result[3] = of.bias.to(kept[3].scalar_type());
    }
    fused::refuse_second_derivatives(
        result, {given[0], kept[0], kept[2], kept[3]},
        {.what = "[batch_norm] no second derivatives",
         .got = "a derivative of a gradient, by create_graph",
         .expected = "first derivatives",
         .fix = "at::batch_norm where a gradient is differentiated; else no create_graph"});
    return result;
  }
};

void check_channels(const at::Tensor& x, const char* name, const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  REIGEN_CHECK(tensor.dim() == 1 && tensor.size(0) == channels_of(x),
               "[batch_norm] the {} does not fit the input\n  got: [{}] for an input of [{}]   expected: [{}]", name,
               fmt::join(tensor.sizes(), ","), fmt::join(x.sizes(), ","), channels_of(x));
}

// Returns the wide type.
at::ScalarType check_batch(const at::Tensor& x, const BatchNormTensors& tensors, const BatchNormOptions& options) {
  const at::Tensor& mean = tensors.running_mean;
  const at::Tensor& var = tensors.running_var;
  fused::check_tensors("batch_norm", {&x, &options.residual, &tensors.weight, &tensors.bias, &mean, &var});
  REIGEN_CHECK((x.dim() == 2 || x.dim() == 4) && channels_of(x) >= 1,
               "[batch_norm] the input has no channels\n  got: [{}]   expected: [B, C] or [B, C, H, W]",
               fmt::join(x.sizes(), ","));
  check_channels(x, "weight", tensors.weight);
  check_channels(x, "bias", tensors.bias);
  check_channels(x, "running_mean", mean);
  check_channels(x, "running_var", var);
  const at::Tensor& residual = options.residual;
  REIGEN_CHECK(
      !residual.defined() || (residual.sizes() == x.sizes() && residual.scalar_type() == x.scalar_type()),
      "[batch_norm] the residual does not fit the input\n  got: {} [{}] for an input of {} [{}]   expected: the "
      "same shape and type",
      c10::toString(residual.scalar_type()), fmt::join(residual.sizes(), ","), c10::toString(x.scalar_type()),
      fmt::join(x.sizes(), ","));
  REIGEN_CHECK(
      mean.defined() == var.defined() && (mean.defined() || options.training),
      "[batch_norm] the running statistics are missing\n  expected: running_mean and running_var{}\n  fix: give "
      "both, or training = true without both",
      options.training ? ", or neither" : "");
  REIGEN_CHECK(
      options.eps >= 0 && std::isfinite(options.eps) && std::isfinite(options.momentum),
      "[batch_norm] eps or momentum is out of range\n  got: {} and {}   expected: finite numbers, eps at least 0",
      options.eps, options.momentum);
  REIGEN_CHECK(!options.training || values_of_channel(x) > 1,
               "[batch_norm] one value has no variance\n  got: an input of [{}]   expected: more than one value per "
               "channel\n  fix: a larger batch, or training = false",
               fmt::join(x.sizes(), ","));
  at::ScalarType wide = x.scalar_type();
  for (const at::Tensor* const tensor : {&tensors.weight, &tensors.bias, &mean, &var}) {
    if (!tensor->defined()) continue;
    if (tensor->scalar_type() != x.scalar_type()) wide = tensor->scalar_type();
  }
  for (const at::Tensor* const tensor : {&tensors.weight, &tensors.bias, &mean, &var}) {
    if (!tensor->defined()) continue;
    REIGEN_CHECK(
        tensor->scalar_type() == wide && fused::have_number(wide, x.scalar_type()),
        "[batch_norm] types do not fit\n  got: {} for an input of {}   expected: one type for weight, bias and "
        "running statistics, that of the input, or Float for an input of 16 bits",
        c10::toString(tensor->scalar_type()), c10::toString(x.scalar_type()));
  }
  for (const at::Tensor* const tensor : {&mean, &var}) {
    REIGEN_CHECK(!tensor->defined() || tensor->is_contiguous(), "[batch_norm] a running statistic has gaps");
  }
  return wide;
}

std::optional<at::Tensor> used_or_none(const at::Tensor& tensor) {
  return tensor.defined() ? std::make_optional(tensor::used(tensor)) : std::nullopt;
}

}  // namespace

at::Tensor batch_norm(const at::Tensor& x, const BatchNormTensors& tensors, const BatchNormOptions& options) {
  const at::ScalarType wide = check_batch(x, tensors, options);
  const at::Tensor input = channels_last(x);
  const BatchHow how{.relu = options.relu, .training = options.training, .wide = wide};
  BatchMoments of;
  {
    const at::NoGradGuard no_grad;
    of = options.training ? of_batch(input, tensors, options, wide) : of_running(tensors, options.eps, wide);
  }
  const auto residual = options.residual.defined() ? std::make_optional(channels_last(options.residual)) : std::nullopt;
  return BatchNorm::apply(input, residual, used_or_none(tensors.weight), used_or_none(tensors.bias), of, how);
}

}  // namespace reigen::nn
