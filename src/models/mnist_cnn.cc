#include "reigen/models/mnist_cnn.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <vector>

namespace reigen::models {

namespace {

// The number of images that go through the convolutions together. The activations of so few images remain in the cache
// between two layers. A weight's gradient is first summed within each slice of kSlice images, and then over the slices.
// So its rounding depends little on the number of images that a rank has.
constexpr std::int64_t kSlice = 16;

}  // namespace

MnistCnn::MnistCnn()
    : conv1_(register_module("conv1", std::make_shared<torch::nn::Conv2dImpl>(torch::nn::Conv2dOptions(1, 32, 3)))),
      conv2_(register_module("conv2", std::make_shared<torch::nn::Conv2dImpl>(torch::nn::Conv2dOptions(32, 64, 3)))),
      fc1_(register_module("fc1", std::make_shared<torch::nn::LinearImpl>(9216, 128))),
      fc2_(register_module("fc2", std::make_shared<torch::nn::LinearImpl>(128, 10))) {}

MnistCnn::~MnistCnn() = default;

at::Tensor MnistCnn::convolve(const at::Tensor& images) {
  // The relu works in place, which saves memory traffic: the activations cause most of it in this model. It may work in
  // place, because the backward of a convolution does not need the convolution's output.
  at::Tensor x = conv1_->forward(images).relu_();
  x = conv2_->forward(x).relu_();
  return at::max_pool2d(x, 2).flatten(1);
}

at::Tensor MnistCnn::forward(const at::Tensor& input) {
  std::vector<at::Tensor> slices;
  for (const at::Tensor& images : input.split(kSlice)) slices.push_back(convolve(images));
  const at::Tensor x = fc1_->forward(slices.size() == 1 ? slices[0] : at::cat(slices)).relu_();
  return fc2_->forward(x);
}

}  // namespace reigen::models
