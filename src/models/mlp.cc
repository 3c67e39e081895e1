#include "reigen/models/mlp.h"

#include <torch/nn/modules/linear.h>

#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "reigen/nn/init.h"

namespace reigen::models {

Mlp::Mlp(const MlpOptions& options) {
  REIGEN_CHECK(options.inputs >= 1 && options.layers >= 1 && options.dim >= 1 && options.classes >= 1,
               "a perceptron of {} inputs, {} layers of {} and {} classes: all must be at least 1", options.inputs,
               options.layers, options.dim, options.classes);
  for (std::int64_t i = 0; i <= options.layers; ++i) {
    const bool last = i == options.layers;
    const auto inputs = i == 0 ? options.inputs : options.dim;
    const std::string name = std::to_string(2 * i);
    const auto linear =
        register_module(name, std::make_shared<torch::nn::LinearImpl>(inputs, last ? options.classes : options.dim));
    units_.emplace_back(name, linear, [layer = linear.get(), last](const nn::Carry& carry) {
      const at::Tensor x = layer->forward(carry.at(0));
      return nn::Carry{last ? x : at::relu(x)};
    });
  }
}

void Mlp::initialize(std::uint64_t seed) {
  const auto parameters = named_parameters();
  for (const auto& item : parameters) {
    const at::Tensor values = item.value().detach();
    if (values.dim() == 1) {
      values.zero_();
      continue;
    }
    const bool last = item.value().is_same(parameters[parameters.size() - 2].value());
    const double fan_in = static_cast<double>(values.size(1));
    nn::fill_uniform(values, item.key(), seed, std::sqrt((last ? 1.0 : 6.0) / fan_in));
  }
}

at::Tensor Mlp::forward(const at::Tensor& input) { return nn::fold(units_, input); }

}  // namespace reigen::models
