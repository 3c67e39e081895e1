// ResNet-18 of He et al., 2015 (https://arxiv.org/abs/1512.03385) in torchvision's form: 11.2 M parameters with 10
// classes.
//
//   [B,3,H,W] conv 7x7/2 -> norm -> relu -> max pool 3/2 -> 4 stages of 2 basic blocks, width·(1, 2, 4, 8) channels,
//   each stage but the first halves H and W -> mean over the image -> linear -> [B, classes] scores, not normalised
//
// Parameters and buffers have torchvision's names with the unit's in front where that is not part of them: stem.conv1,
// stem.bn1, layer1.0.conv1, ..., layer4.1.bn2, head.fc.
// Thread rule: as torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "reigen/nn/unit.h"

namespace reigen::models {

struct ResNet18Options {
  std::int64_t classes = 10;
  std::int64_t width = 64;  // channels of the first stage
  // In training a batch of B samples is normalised in ceil(B / norm_batch) parts of its own (sizes differ by at most
  // one), each with its own mean and variance; 0: all of it together. With parts that no rank's share cuts, what is
  // computed does not depend on the number of ranks. Parts of fewer values than two a channel have no variance: they
  // take the running statistics.
  std::int64_t norm_batch = 32;
};

class ResNet18 : public torch::nn::Module {
 public:
  explicit ResNet18(const ResNet18Options& options = {});  // throws InvalidArgument for sizes out of range

  // Convolutions normal with variance 2 / fan_out, the linear layer as nn::initialize, norms 1 and 0 (torchvision's),
  // but 0 for the weight of a block's last norm: every block begins as the identity (Goyal et al., 2017,
  // https://arxiv.org/abs/1706.02677, section 5.1), so that rounding does not grow in the first steps.
  void initialize(std::uint64_t seed);

  // input: [B, 3, H, W], of the parameters' type, B at least 1. Result: [B, classes].
  at::Tensor forward(const at::Tensor& input);

  const std::vector<nn::Unit>& units() const { return units_; }  // stem, layer1.0, ..., layer4.1, head

 private:
  std::vector<nn::Unit> units_;
};

}  // namespace reigen::models
