#include "reigen/nn/cross_entropy.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "base/check.h"
#include "nn/fused/once.h"
#include "nn/fused/run.h"
#include "nn/kept_outputs.h"

namespace reigen::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Loss {
  at::Tensor loss;
  at::Tensor counted;  // the number of rows that count, in fp64
};

// Whether the gradients of a loss are divided by the number of rows in forward. In fp16 many of the quotients would be
// 0, and the factor of a gradient scaler comes only in backward. So backward divides the factor.
bool divides_in_forward(at::ScalarType type) { return type != at::kHalf; }

// `gradients` may be undefined, or `logits` itself. All tensors have no gaps.
Loss loss_of(const at::Tensor& logits, const at::Tensor& gradients, const at::Tensor& target, std::int64_t ignored) {
  const std::int64_t rows = logits.size(0);
  const at::TensorOptions options = logits.options().dtype(fused::computed(logits.scalar_type()));
  const at::Tensor losses = at::empty({rows}, options);
  const at::Tensor loss = at::empty({}, options);
  const at::Tensor counted = at::empty({}, options.dtype(at::kDouble));
  static_assert(sizeof(long long) == sizeof(std::int64_t));
  fused::run(logits, device::CrossEntropyCall{
                         .logits = fused::address(logits),
                         .gradients = fused::target(gradients),
                         .targets = reinterpret_cast<const long long*>(target.const_data_ptr<std::int64_t>()),
                         .losses = fused::target(losses),
                         .counted = counted.mutable_data_ptr<double>(),
                         .loss = fused::target(loss),
                         .rows = rows,
                         .columns = logits.size(1),
                         .ignored = ignored,
                         .types = fused::number_of(logits.scalar_type(), logits.scalar_type()),
                         .divides = divides_in_forward(logits.scalar_type())});
  return {.loss = loss, .counted = counted};
}

// Whether somebody else keeps the values: they are a parameter, a view of one, or what activation checkpointing keeps.
// Autograd allows no write to some views, for example to one of several views from one operation.
bool is_kept(const at::Tensor& logits) {
  if (logits.is_leaf() || is_kept_output(logits)) return true;
  if (!logits.is_view()) return false;
  return logits._base().is_leaf() || torch::autograd::impl::get_view_autograd_meta(logits)->get_creation_meta() !=
                                         torch::autograd::CreationMeta::DEFAULT;
}

struct CrossEntropy : torch::autograd::Function<CrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits, const at::Tensor& target,
                            std::int64_t ignored, bool keeps) {
    const bool in_place = !keeps && !is_kept(logits) && logits.is_contiguous();
    if (in_place) KeptOutputs::before_write(logits);
    const at::Tensor values = logits.contiguous();
    // variable_data() is the same memory with a version counter of its own.
    const at::Tensor gradients =
        in_place ? at::Tensor(values.variable_data()) : at::empty(values.sizes(), values.options());
    const Loss result = loss_of(values, gradients, target, ignored);
    if (in_place) logits.unsafeGetTensorImpl()->bump_version();
    // LibTorch reports an error if a saved tensor has another version in backward. `gradients` has its own counter, so
    // the logits are saved too. Then a write to them after this call is an error.
    context->save_for_backward({gradients, divides_in_forward(values.scalar_type()) ? at::Tensor() : result.counted,
                                in_place ? logits : at::Tensor()});
    context->saved_data["used"] = false;
    return result.loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& of_loss) {
    // Before the saved tensors, which are gone after a backward without retain_graph.
    REIGEN_CHECK(!context->saved_data["used"].toBool(),
                 "[cross_entropy] a second backward through one loss\n  got: a gradient that the first backward has "
                 "changed   expected: one backward\n  fix: compute the loss again, or add losses before backward");
    const variable_list saved = context->get_saved_variables();
    context->saved_data["used"] = true;
    const at::Tensor gradient = saved[0].variable_data();
    {
      const at::NoGradGuard no_grad;
      const at::Tensor factor = of_loss[0].contiguous();
      fused::run(gradient,
                 device::MultiplyCall{.values = fused::target(gradient),
                                      .factor = fused::address(factor),
                                      .divisor = static_cast<const double*>(fused::address(saved[1])),
                                      .count = gradient.numel(),
                                      .types = fused::number_of(gradient.scalar_type(), gradient.scalar_type())});
    }
    fused::refuse_second_derivatives(
        {gradient}, {of_loss[0]},
        {.what = "[cross_entropy] no second derivatives",
         .got = "a derivative of a gradient, by create_graph",
         .expected = "first derivatives",
         .fix = "at::cross_entropy_loss where a gradient is differentiated; else no create_graph"},
        {torch::autograd::get_current_node()->next_edge(0)});  // that of the logits
    return {gradient, {}, {}, {}};
  }
};

void check_targets(const at::Tensor& target, std::int64_t classes, std::int64_t ignored) {
  const auto* const numbers = target.const_data_ptr<std::int64_t>();
  const auto* const end = numbers + target.numel();
  const auto* const wrong =
      std::find_if(numbers, end, [&](std::int64_t t) { return t != ignored && (t < 0 || t >= classes); });
  REIGEN_CHECK(wrong == end,
               "[cross_entropy] a target is no class\n  got: {} in row {}   expected: 0 to {}, or {} to leave the row "
               "out",
               *wrong, wrong - numbers, classes - 1, ignored);
}

}  // namespace

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& target, const CrossEntropyOptions& options) {
  fused::check_tensors("cross_entropy", {&logits});
  REIGEN_CHECK(target.defined(), "[cross_entropy] the target is undefined\n  fix: give it a value");
  REIGEN_CHECK(logits.dim() == 2 && logits.size(1) >= 1 && target.dim() == 1 && target.size(0) == logits.size(0),
               "[cross_entropy] the shapes do not fit\n  got: logits [{}], target [{}]   expected: [N,C] and [N]\n  "
               "fix: logits.flatten(0, -2), target.flatten()",
               fmt::join(logits.sizes(), ","), fmt::join(target.sizes(), ","));
  REIGEN_CHECK(target.scalar_type() == at::kLong && target.device() == logits.device(),
               "[cross_entropy] the target has another type or device\n  got: {} on {}   expected: Long on {}",
               c10::toString(target.scalar_type()), target.device().str(), logits.device().str());
  const at::Tensor targets = target.contiguous();
  if (targets.device().is_cpu()) check_targets(targets, logits.size(1), options.ignore_index);
  if (at::GradMode::is_enabled() && logits.requires_grad()) {
    return CrossEntropy::apply(logits, targets, options.ignore_index, options.keep_logits);
  }
  const at::NoGradGuard no_grad;
  return loss_of(logits.contiguous(), {}, targets, options.ignore_index).loss;
}

}  // namespace reigen::nn
