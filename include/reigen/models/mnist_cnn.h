// The small convolutional network of PyTorch's MNIST example, without dropout: 1.2 M parameters.
//
//   [B,1,28,28] conv 3x3 -> relu -> [B,32,26,26] conv 3x3 -> relu -> [B,64,24,24] max pool 2 -> [B,9216] linear -> relu
//   -> [B,128] linear -> [B,10] scores, not normalised
//
// Parameters: conv1, conv2, fc1, fc2, each with .weight and .bias.
// Thread rule: as for torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>

namespace torch::nn {
class Conv2dImpl;
class LinearImpl;
}  // namespace torch::nn

namespace reigen::models {

class MnistCnn : public torch::nn::Module {
 public:
  // The initial values come from LibTorch's random generator. nn::initialize() replaces them by values that depend only
  // on a seed.
  MnistCnn();
  ~MnistCnn() override;

  // `input` has the shape [B, 1, 28, 28] and the parameters' element type; B may be 0. The result has the shape
  // [B, 10].
  at::Tensor forward(const at::Tensor& input);

 private:
  at::Tensor convolve(const at::Tensor& images);  // returns [B, 9216]

  std::shared_ptr<torch::nn::Conv2dImpl> conv1_;
  std::shared_ptr<torch::nn::Conv2dImpl> conv2_;
  std::shared_ptr<torch::nn::LinearImpl> fc1_;
  std::shared_ptr<torch::nn::LinearImpl> fc2_;
};

}  // namespace reigen::models
