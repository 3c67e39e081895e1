// ResNet-18 of He et al., 2015 (https://arxiv.org/abs/1512.03385) in torchvision's form: 11.2 M parameters with 10
// classes.
//
//   [B,3,H,W] conv 7x7/2 -> norm -> relu -> max pool 3/2 -> 4 stages of 2 basic blocks, width·(1, 2, 4, 8) channels,
//   each stage but the first halves H and W -> mean over the image -> linear -> [B, classes] scores, not normalised
//
// Parameters and buffers have torchvision's names, with two prefixes added: the names of the first layers begin with
// "stem.", and those of the last layer with "head.". Examples: stem.conv1, stem.bn1, layer1.0.conv1, layer4.1.bn2,
// head.fc.
// Thread rule: as for torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "reigen/nn/kernels.h"
#include "reigen/nn/unit.h"

namespace reigen::models {

struct ResNet18Options {
  std::int64_t classes = 10;
  std::int64_t width = 64;  // channels of the first stage
  // In training, batch normalisation divides a batch of B samples into ceil(B / norm_batch) parts, whose sizes differ
  // by at most one. It normalises each part with the part's own mean and variance. 0 means that the whole batch is one
  // part. If no part is divided between ranks, the results do not depend on the number of ranks. A part with fewer than
  // two values per channel has no variance, so it is normalised with the running statistics.
  std::int64_t norm_batch = 32;
  // The operations of norms with the addition and ReLU after them (nn/batch_norm.h), or LibTorch's. Those on a GPU need
  // libreigen_cuda.so, and cannot be differentiated twice; kTorch can.
  nn::Kernels kernels = nn::Kernels::kAuto;
};

class ResNet18 : public torch::nn::Module {
 public:
  explicit ResNet18(const ResNet18Options& options = {});  // throws InvalidArgument for sizes out of range

  // Sets the initial values. The weights of convolutions are normal with variance 2 / fan_out. nn::initialize() sets
  // the linear layer. The normalisation layers' weights are 1 and their biases 0, as in torchvision. There is one
  // exception: the weight of each block's last normalisation layer is 0. So every block begins as the identity (Goyal
  // et al., 2017, https://arxiv.org/abs/1706.02677, section 5.1), and rounding errors do not grow in the first steps.
  void initialize(std::uint64_t seed);

  // `input` has the shape [B, 3, H, W] and the parameters' element type; B is at least 1. The result has the shape
  // [B, classes].
  at::Tensor forward(const at::Tensor& input);

  const std::vector<nn::Unit>& units() const { return units_; }  // stem, layer1.0, ..., layer4.1, head

 private:
  std::vector<nn::Unit> units_;
};

}  // namespace reigen::models
