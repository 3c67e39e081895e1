#include "reigen/models/mnist_cnn.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

namespace reigen::models {

MnistCnn::MnistCnn()
    : conv1_(register_module("conv1", std::make_shared<torch::nn::Conv2dImpl>(torch::nn::Conv2dOptions(1, 32, 3)))),
      conv2_(register_module("conv2", std::make_shared<torch::nn::Conv2dImpl>(torch::nn::Conv2dOptions(32, 64, 3)))),
      fc1_(register_module("fc1", std::make_shared<torch::nn::LinearImpl>(9216, 128))),
      fc2_(register_module("fc2", std::make_shared<torch::nn::LinearImpl>(128, 10))) {}

MnistCnn::~MnistCnn() = default;

at::Tensor MnistCnn::forward(const at::Tensor& input) {
  // In place: a convolution's backward does not need its output, and the activations are most of this model's memory
  // traffic.
  at::Tensor x = conv1_->forward(input).relu_();
  x = conv2_->forward(x).relu_();
  x = at::max_pool2d(x, 2).flatten(1);
  x = fc1_->forward(x).relu_();
  return fc2_->forward(x);
}

}  // namespace reigen::models
