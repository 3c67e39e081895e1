// The residual networks of He et al., 2015 (https://arxiv.org/abs/1512.03385) with 18, 34, 50, 101 or 152 layers, as
// torchvision computes them ("v1.5": the convolution 3x3 of a bottleneck has the stride).
//
//   [B,3,H,W] conv 7x7/2 -> norm -> relu -> max pool 3/2 -> 4 stages of blocks, width·(1, 2, 4, 8) channels, each stage
//   but the first halves H and W -> mean over the image -> linear -> [B, classes] scores, not normalised
//
//   depth        18       34       50       101      152
//   blocks       2,2,2,2  3,4,6,3  3,4,6,3  3,4,23,3  3,8,36,3
//   of a block   two convolutions 3x3     1x1, 3x3, and 1x1 with four times the channels
//   parameters   11.7 M   21.8 M   25.6 M   44.5 M   60.2 M      with 1000 classes
//
// Parameters and buffers have torchvision's names, types and order: conv1.weight, bn1.running_mean,
// layer1.0.downsample.0.weight, fc.bias. So a state_dict of torchvision fits, and the other way round.
// Thread rule: as for torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "reigen/nn/kernels.h"
#include "reigen/nn/unit.h"

namespace reigen::models {

struct ResNetOptions {
  std::int64_t depth = 50;  // 18, 34, 50, 101 or 152
  std::int64_t classes = 1000;
  std::int64_t width = 64;  // channels of the first stage, before a bottleneck's factor of 4
  // In training, batch normalisation divides a batch of B samples into ceil(B / norm_batch) parts, whose sizes differ
  // by at most one. It normalises each part with the part's own mean and variance. 0 means that the whole batch is one
  // part, as in torchvision. If no part is divided between ranks, the results do not depend on the number of ranks. A
  // part with fewer than two values per channel has no variance, so it is normalised with the running statistics.
  std::int64_t norm_batch = 0;
  // initialize() sets the weight of each block's last normalisation to 0, so that every block begins as the identity
  // (Goyal et al., 2017, https://arxiv.org/abs/1706.02677, section 5.1; torchvision's zero_init_residual).
  bool zero_last_norm = false;
  // initialize() draws the weights of the linear layer from N(0, classifier_deviation²), and sets its bias to 0 (Goyal
  // et al. take 0.01). With 0, weights and bias are uniform in ±1/sqrt(fan_in), as in torchvision.
  double classifier_deviation = 0;
  // The operations of norms with the addition and ReLU after them (nn/batch_norm.h), or LibTorch's. Those on a GPU need
  // libreigen_cuda.so, and cannot be differentiated twice; kTorch can.
  nn::Kernels kernels = nn::Kernels::kAuto;
};

class ResNet : public torch::nn::Module {
 public:
  explicit ResNet(const ResNetOptions& options = {});  // throws InvalidArgument for values out of range

  // Sets the initial values, which depend on the seed and the parameters' names alone. The weights of convolutions are
  // normal with variance 2 / fan_out. The weights of normalisation layers are 1 and their biases 0. The options say
  // what else there is to choose.
  void initialize(std::uint64_t seed);

  // `input` has the shape [B, 3, H, W] and the parameters' element type; B is at least 1. The result has the shape
  // [B, classes].
  at::Tensor forward(const at::Tensor& input);

  // conv1, bn1 (with relu and pool), layer1.0, ..., fc (with the mean over the image).
  const std::vector<nn::Unit>& units() const { return units_; }

 private:
  ResNetOptions options_;
  std::vector<nn::Unit> units_;
};

}  // namespace reigen::models
