#include "reigen/nn/norm.h"

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

// The tensors of a backward.
struct Saved {
  at::Tensor y;
  at::Tensor weight;
  at::Tensor mean;
  at::Tensor rstd;
};

// The gradients of the input, and of the sum's second part in the narrow type.
struct OfInput {
  at::Tensor x;
  at::Tensor added;
};

OfInput of_input(const Saved& saved, const at::Tensor& of_output, const at::Tensor& of_sum) {
  const at::ScalarType narrow = of_output.scalar_type();
  OfInput result{.x = at::empty_like(saved.y, at::MemoryFormat::Contiguous), .added = {}};
  if (narrow != saved.y.scalar_type()) result.added = at::empty(saved.y.sizes(), of_output.options());
  if (saved.y.numel() > 0) {
    fused::run(saved.y, device::NormBackwardCall{.of_output = fused::address(of_output),
                                                 .of_sum = fused::address(of_sum),
                                                 .sum = fused::address(saved.y),
                                                 .weight = fused::address(saved.weight),
                                                 .mean = fused::address(saved.mean),
                                                 .rstd = fused::address(saved.rstd),
                                                 .of_input = fused::target(result.x),
                                                 .of_added = fused::target(result.added),
                                                 .rows = fused::rows_of(saved.y),
                                                 .columns = fused::columns_of(saved.y),
                                                 .types = fused::number_of(saved.y.scalar_type(), narrow)});
  }
  if (!result.added.defined()) result.added = result.x;
  return result;
}

// The gradients of weight and bias. of_bias is undefined if the norm has no bias.
struct OfParameters {
  at::Tensor weight;
  at::Tensor bias;
};

OfParameters of_parameters(const Saved& saved, const at::Tensor& of_output, bool has_bias) {
  const std::int64_t rows = fused::rows_of(saved.y);
  const std::int64_t columns = fused::columns_of(saved.y);
  const at::TensorOptions options = saved.y.options();
  OfParameters result{.weight = at::empty({columns}, options), .bias = {}};
  if (has_bias) result.bias = at::empty({columns}, options);
  if (rows == 0) {
    result.weight.zero_();
    if (has_bias) result.bias.zero_();
    return result;
  }
  const at::Tensor parts = at::empty({has_bias ? 2 : 1, device::sums_of(rows), columns}, saved.rstd.options());
  fused::run(saved.y, device::NormSumsCall{.of_output = fused::address(of_output),
                                           .sum = fused::address(saved.y),
                                           .mean = fused::address(saved.mean),
                                           .rstd = fused::address(saved.rstd),
                                           .parts = fused::target(parts),
                                           .of_weight = fused::target(result.weight),
                                           .of_bias = fused::target(result.bias),
                                           .rows = rows,
                                           .columns = columns,
                                           .types = fused::number_of(saved.y.scalar_type(), of_output.scalar_type())});
  return result;
}

// Its arguments besides the tensors.
struct How {
  at::ScalarType narrow;
  bool has_mean;
  double eps;
};

// x has no gaps. x, weight and bias have the wide type, `added` the narrow one. The tensors are optional, because
// apply() takes no undefined tensor. Returns the output, then the sum if there is one.
struct Norm : torch::autograd::Function<Norm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& added,
                               const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                               const How& how) {
    const at::Tensor d = added ? added->contiguous() : at::Tensor();
    const at::Tensor w = weight ? weight->contiguous() : at::Tensor();
    const at::Tensor b = bias ? bias->contiguous() : at::Tensor();
    const at::TensorOptions statistics = x.options().dtype(fused::computed(x.scalar_type()));
    const std::int64_t rows = fused::rows_of(x);
    const at::Tensor output = at::empty(x.sizes(), x.options().dtype(how.narrow));
    const at::Tensor sum = added ? at::empty(x.sizes(), x.options()) : at::Tensor();
    const at::Tensor mean = how.has_mean ? at::empty({rows}, statistics) : at::Tensor();
    const at::Tensor rstd = at::empty({rows}, statistics);
    if (rows > 0) {
      fused::run(x, device::NormCall{.input = fused::address(x),
                                     .added = fused::address(d),
                                     .sum = fused::target(sum),
                                     .weight = fused::address(w),
                                     .bias = fused::address(b),
                                     .output = fused::target(output),
                                     .mean = fused::target(mean),
                                     .rstd = fused::target(rstd),
                                     .rows = rows,
                                     .columns = fused::columns_of(x),
                                     .eps = how.eps,
                                     .types = fused::number_of(x.scalar_type(), how.narrow)});
    }
    context->set_materialize_grads(false);
    context->save_for_backward({added ? sum : x, weight.value_or(at::Tensor()), mean, rstd});
    context->saved_data["of_weight"] = weight && weight->requires_grad();
    context->saved_data["of_bias"] = bias && bias->requires_grad();
    return added ? variable_list{output, sum} : variable_list{output};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list kept = context->get_saved_variables();
    variable_list result(5);  // of x, added, weight, bias; `how` has none
    if (!gradients[0].defined()) {
      // Only the sum was used. Autograd converts the gradient to the types of x and added.
      if (gradients.size() > 1) result[0] = result[1] = gradients[1];
      return result;
    }
    {
      const at::NoGradGuard no_grad;
      derivatives(context, {kept[0], kept[1], kept[2], kept[3]}, gradients, result);
    }
    variable_list on = gradients;
    on.insert(on.end(), {kept[0], kept[1]});
    fused::refuse_second_derivatives(
        result, on,
        {.what = "[norm] no second derivatives",
         .got = "a derivative of a gradient, by create_graph",
         .expected = "first derivatives",
         .fix = "at::layer_norm or at::rms_norm where a gradient is differentiated; else no create_graph"});
    return result;
  }

  static void derivatives(AutogradContext* context, const Saved& given, const variable_list& gradients,
                          variable_list& result) {
    const at::Tensor of_sum = gradients.size() > 1 && gradients[1].defined() ? gradients[1].contiguous() : at::Tensor();
    Saved saved = given;
    saved.y = given.y.contiguous();
    if (given.weight.defined()) saved.weight = given.weight.contiguous();
    const at::Tensor of_output = gradients[0].contiguous();
    const OfInput of = of_input(saved, of_output, of_sum);
    result[0] = of.x;
    if (gradients.size() > 1) result[1] = of.added;
    const bool of_weight = context->saved_data["of_weight"].toBool();
    const bool of_bias = context->saved_data["of_bias"].toBool();
    if (!of_weight && !of_bias) return;
    const OfParameters parameters = of_parameters(saved, of_output, of_bias);
    if (of_weight) result[2] = parameters.weight;
    if (of_bias) result[3] = parameters.bias;
  }
};

std::optional<at::Tensor> in_type(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() ? std::make_optional(tensor.to(type)) : std::nullopt;
}

AddedNorm normalised(const char* what, const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight,
                     const at::Tensor& bias, bool has_mean, double eps) {
  fused::check_tensors(what, {&x, &added, &weight, &bias});
  fused::check_columns(what, "weight", x, weight);
  fused::check_columns(what, "bias", x, bias);
  REIGEN_CHECK(!added.defined() || added.sizes() == x.sizes(),
               "[{}] what is added does not fit the input\n  got: [{}] for an input of [{}]   expected: the same shape",
               what, fmt::join(added.sizes(), ","), fmt::join(x.sizes(), ","));
  REIGEN_CHECK(eps >= 0 && std::isfinite(eps),
               "[{}] eps is out of range\n  got: {}   expected: a finite number of at least 0", what, eps);
  at::ScalarType wide = x.scalar_type();
  for (const at::Tensor* const tensor : {&weight, &bias}) {
    if (tensor->defined()) wide = c10::promoteTypes(wide, tensor->scalar_type());
  }
  at::Tensor input = x;
  at::Tensor also = added;
  // The kernels add a part in the narrow type only.
  if (added.defined() && added.scalar_type() != fused::autocast_type(x, wide)) {
    wide = c10::promoteTypes(wide, added.scalar_type());
    input = x.to(wide) + added.to(wide);
    also = at::Tensor();
  }
  // Not in forward, where the copy of an input with gaps would lose its history. Backward needs the history to refuse
  // second derivatives.
  input = input.to(wide).contiguous();
  const How how{.narrow = fused::autocast_type(x, wide), .has_mean = has_mean, .eps = eps};
  const variable_list results = Norm::apply(input, also.defined() ? std::make_optional(also) : std::nullopt,
                                            in_type(weight, wide), in_type(bias, wide), how);
  return {.sum = also.defined() ? results[1] : input, .output = results[0]};
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  return normalised("layer_norm", x, {}, tensor::used(weight), tensor::used(bias), true, eps).output;
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return normalised("rms_norm", x, {}, tensor::used(weight), {}, false, eps).output;
}

AddedNorm add_layer_norm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, const at::Tensor& bias,
                         double eps) {
  return normalised("add_layer_norm", x, added, tensor::used(weight), tensor::used(bias), true, eps);
}

AddedNorm add_rms_norm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, double eps) {
  return normalised("add_rms_norm", x, added, tensor::used(weight), {}, false, eps);
}

}  // namespace reigen::nn
