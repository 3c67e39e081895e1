#include "reigen/nn/activations.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "base/check.h"
#include "nn/fused/once.h"
#include "nn/fused/run.h"

namespace reigen::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The type of the bias in a call.
at::ScalarType wide_of(const at::Tensor& input, const at::Tensor& bias) {
  return bias.defined() ? bias.scalar_type() : input.scalar_type();
}

// x has no gaps. The bias is optional, because apply() takes no undefined tensor.
struct Gelu : torch::autograd::Function<Gelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& bias) {
    const at::Tensor b = bias ? bias->contiguous() : at::Tensor();
    const at::Tensor output = at::empty(x.sizes(), x.options());
    fused::run(x, device::GeluCall{.input = fused::address(x),
                                   .bias = fused::address(b),
                                   .output = fused::target(output),
                                   .rows = fused::rows_of(x),
                                   .columns = fused::columns_of(x),
                                   .types = fused::number_of(wide_of(x, b), x.scalar_type())});
    context->save_for_backward({x, bias.value_or(at::Tensor())});
    context->saved_data["of_bias"] = bias && bias->requires_grad();
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    variable_list result(2);
    {
      const at::NoGradGuard no_grad;
      derivatives(saved[0], saved[1], gradients[0].contiguous(), context->saved_data["of_bias"].toBool(), result);
    }
    fused::refuse_second_derivatives(result, {gradients[0], saved[0], saved[1]},
                                     {.what = "[gelu] no second derivatives",
                                      .got = "a derivative of a gradient, by create_graph",
                                      .expected = "first derivatives",
                                      .fix = "at::gelu where a gradient is differentiated; else no create_graph"});
    return result;
  }

  static void derivatives(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& of_output, bool has_of_bias,
                          variable_list& result) {
    const at::Tensor b = bias.defined() ? bias.contiguous() : bias;
    const std::int64_t rows = fused::rows_of(x);
    const std::int64_t columns = fused::columns_of(x);
    const at::ScalarType wide = wide_of(x, b);
    result[0] = at::empty(x.sizes(), x.options());
    at::Tensor parts;
    if (has_of_bias) {
      result[1] = at::zeros({columns}, b.options());
      parts = at::empty({device::sums_of(rows), columns}, b.options().dtype(fused::computed(wide)));
    }
    if (rows == 0) return;
    fused::run(x, device::GeluBackwardCall{.of_output = fused::address(of_output),
                                           .input = fused::address(x),
                                           .bias = fused::address(b),
                                           .of_input = fused::target(result[0]),
                                           .parts = fused::target(parts),
                                           .of_bias = fused::target(result[1]),
                                           .rows = rows,
                                           .columns = columns,
                                           .types = fused::number_of(wide, x.scalar_type())});
  }
};

// The rows of a tensor, and the distance between two of them in elements.
struct Rows {
  at::Tensor values;
  std::int64_t stride;
};

// A part of the last dimension of a tensor without gaps needs no copy.
Rows rows_of(const at::Tensor& x) {
  const std::int64_t columns = fused::columns_of(x);
  if (x.dim() == 1 || x.is_contiguous()) return {x.contiguous(), columns};
  const std::int64_t last = x.dim() - 1;
  bool is_even = x.stride(last) == 1;
  for (std::int64_t d = 0; d + 1 < last; ++d) is_even = is_even && x.stride(d) == x.stride(d + 1) * x.size(d + 1);
  if (is_even && x.stride(last - 1) >= columns) return {x, x.stride(last - 1)};
  return {x.contiguous(), columns};
}

struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate, const at::Tensor& up) {
    const Rows a = rows_of(gate);
    const Rows b = rows_of(up);
    const at::Tensor output = at::empty(gate.sizes(), gate.options());
    fused::run(gate, device::SwigluCall{.gate = fused::address(a.values),
                                        .up = fused::address(b.values),
                                        .output = fused::target(output),
                                        .gate_stride = a.stride,
                                        .up_stride = b.stride,
                                        .rows = fused::rows_of(gate),
                                        .columns = fused::columns_of(gate),
                                        .types = fused::number_of(gate.scalar_type(), gate.scalar_type())});
    context->save_for_backward({gate, up});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    variable_list result(2);
    {
      const at::NoGradGuard no_grad;
      derivatives(rows_of(saved[0]), rows_of(saved[1]), gradients[0].contiguous(), result);
    }
    fused::refuse_second_derivatives(
        result, {gradients[0], saved[0], saved[1]},
        {.what = "[swiglu] no second derivatives",
         .got = "a derivative of a gradient, by create_graph",
         .expected = "first derivatives",
         .fix = "at::silu(gate) * up where a gradient is differentiated; else no create_graph"});
    return result;
  }

  static void derivatives(const Rows& gate, const Rows& up, const at::Tensor& of_output, variable_list& result) {
    const at::TensorOptions options = of_output.options();
    const std::int64_t columns = fused::columns_of(of_output);
    for (at::Tensor& one : result) one = at::empty(of_output.sizes(), options);
    fused::run(of_output,
               device::SwigluBackwardCall{.of_output = fused::address(of_output),
                                          .gate = fused::address(gate.values),
                                          .up = fused::address(up.values),
                                          .of_gate = fused::target(result[0]),
                                          .of_up = fused::target(result[1]),
                                          .gate_stride = gate.stride,
                                          .up_stride = up.stride,
                                          .of_gate_stride = columns,
                                          .of_up_stride = columns,
                                          .rows = fused::rows_of(of_output),
                                          .columns = columns,
                                          .types = fused::number_of(of_output.scalar_type(), of_output.scalar_type())});
  }
};

}  // namespace

at::Tensor gelu(const at::Tensor& input, const at::Tensor& bias) {
  fused::check_tensors("gelu", {&input, &bias});
  fused::check_columns("gelu", "bias", input, bias);
  // Not in forward, where the copy of an input with gaps would lose its history. Backward needs the history to refuse
  // second derivatives.
  const at::Tensor x = input.contiguous();
  if (!bias.defined()) return Gelu::apply(x, std::nullopt);
  if (fused::have_number(bias.scalar_type(), x.scalar_type())) return Gelu::apply(x, std::make_optional(bias));
  const at::ScalarType both = c10::promoteTypes(x.scalar_type(), bias.scalar_type());
  return Gelu::apply(x.to(both), std::make_optional(bias.to(both)));
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  fused::check_tensors("swiglu", {&gate, &up});
  fused::check_columns("swiglu", "", gate, {});
  REIGEN_CHECK(up.defined() && gate.sizes() == up.sizes(),
               "[swiglu] gate and up do not fit\n  got: [{}] and [{}]   expected: one shape",
               fmt::join(gate.sizes(), ","), up.defined() ? fmt::format("{}", fmt::join(up.sizes(), ",")) : "nothing");
  const at::ScalarType both = c10::promoteTypes(gate.scalar_type(), up.scalar_type());
  return Swiglu::apply(gate.to(both), up.to(both));
}

}  // namespace reigen::nn
