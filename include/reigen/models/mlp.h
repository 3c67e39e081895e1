// A plain multilayer perceptron: 8.4 M parameters as it stands.
//
//   [B, inputs] (linear -> relu) x layers -> [B, dim] linear -> [B, classes] scores, not normalised
//
// Parameters: 0, 2, 4, ... as torch::nn::Sequential would name its linear layers, each with .weight and .bias.
// Thread rule: as torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "reigen/nn/unit.h"

namespace reigen::models {

struct MlpOptions {
  std::int64_t inputs = 1024;
  std::int64_t layers = 8;  // hidden ones
  std::int64_t dim = 1024;  // of the hidden layers
  std::int64_t classes = 10;
};

class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(const MlpOptions& options = {});  // throws InvalidArgument for sizes below 1

  // Weights uniform with variance 2 / fan_in, which keeps the size of what goes forward (He et al., 2015,
  // https://arxiv.org/abs/1502.01852); 1 / (3·fan_in) in the last layer. Biases 0.
  void initialize(std::uint64_t seed);

  // input: [B, inputs], of the parameters' type. Result: [B, classes].
  at::Tensor forward(const at::Tensor& input);

  const std::vector<nn::Unit>& units() const { return units_; }  // one a layer

 private:
  std::vector<nn::Unit> units_;
};

}  // namespace reigen::models
