#include "reigen/nn/embedding.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>

#include "base/check.h"
#include "nn/fused/once.h"
#include "nn/fused/run.h"
#include "tensor/hooks/taken_over.h"

namespace reigen::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const long long* numbers_of(const at::Tensor& tensor) {
  static_assert(sizeof(long long) == sizeof(std::int64_t));
  return reinterpret_cast<const long long*>(tensor.const_data_ptr<std::int64_t>());
}

struct Embedding : torch::autograd::Function<Embedding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens, const at::Tensor& weight) {
    context->save_for_backward({tokens});
    context->saved_data["tokens"] = weight.size(0);
    return at::embedding(weight, tokens);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor tokens = context->get_saved_variables()[0];
    at::Tensor result;
    {
      const at::NoGradGuard no_grad;
      result = of_weight(tokens, context->saved_data["tokens"].toInt(), gradients[0].contiguous());
    }
    fused::refuse_second_derivatives({result}, {gradients[0]},
                                     {.what = "[embedding] no second derivatives",
                                      .got = "a derivative of a gradient, by create_graph",
                                      .expected = "first derivatives",
                                      .fix = "at::embedding where a gradient is differentiated; else no create_graph"});
    return {{}, result};
  }

  static at::Tensor of_weight(const at::Tensor& tokens, std::int64_t count, const at::Tensor& of_output) {
    const std::int64_t columns = fused::columns_of(of_output);
    const at::Tensor result = at::zeros({count, columns}, of_output.options());
    if (tokens.numel() == 0) return result;
    const auto [sorted, order] = tokens.flatten().to(at::kLong).sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
    fused::run(of_output,
               device::EmbeddingSumsCall{.of_output = fused::address(of_output),
                                         .sorted = numbers_of(sorted),
                                         .order = numbers_of(order),
                                         .of_weight = fused::target(result),
                                         .rows = tokens.numel(),
                                         .columns = columns,
                                         .tokens = count,
                                         .types = fused::number_of(of_output.scalar_type(), of_output.scalar_type())});
    return result;
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& weight) {
  if (tensor::is_taken_over(weight)) return at::embedding(weight, tokens);
  fused::check_tensors("embedding", {&weight});
  REIGEN_CHECK(weight.dim() == 2 && weight.size(1) >= 1,
               "[embedding] the weight has another shape\n  got: [{}]   expected: [V,D]",
               fmt::join(weight.sizes(), ","));
  REIGEN_CHECK(tokens.defined() && (tokens.scalar_type() == at::kLong || tokens.scalar_type() == at::kInt) &&
                   tokens.device() == weight.device(),
               "[embedding] the tokens have another type or device\n  got: {} on {}   expected: Long or Int on {}",
               tokens.defined() ? c10::toString(tokens.scalar_type()) : "nothing",
               tokens.defined() ? tokens.device().str() : "no device", weight.device().str());
  return Embedding::apply(tokens, weight);
}

}  // namespace reigen::nn
