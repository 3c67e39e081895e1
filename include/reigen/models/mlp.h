// A plain multilayer perceptron. With the default options it has 8.4 M parameters.
//
//   [B, inputs] (linear -> relu) x layers -> [B, dim] linear -> [B, classes] scores, not normalised
//
// The parameters have the names that a torch::nn::Sequential of linear layers and relus would give them. So the linear
// layers are 0, 2, 4, ..., each with .weight and .bias.
// Thread rule: as for torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "reigen/nn/unit.h"

namespace reigen::models {

struct MlpOptions {
  std::int64_t inputs = 1024;
  std::int64_t layers = 8;  // number of hidden layers
  std::int64_t dim = 1024;  // width of the hidden layers
  std::int64_t classes = 10;
};

class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(const MlpOptions& options = {});  // throws InvalidArgument for sizes below 1

  // Sets the initial values. Weights are uniform with variance 2 / fan_in, so that the activations of all layers have
  // about the same size (He et al., 2015, https://arxiv.org/abs/1502.01852). In the last layer the variance is
  // 1 / (3·fan_in). Biases are 0.
  void initialize(std::uint64_t seed);

  // `input` has the shape [B, inputs] and the parameters' element type. The result has the shape [B, classes].
  at::Tensor forward(const at::Tensor& input);

  const std::vector<nn::Unit>& units() const { return units_; }  // one unit for each layer

 private:
  std::vector<nn::Unit> units_;
};

}  // namespace reigen::models
