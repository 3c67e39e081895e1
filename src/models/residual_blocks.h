// The parts from which the residual networks are made: a convolution, a batch normalisation that can take a batch in
// parts, and a residual block.
// Thread rule: as for torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reigen/nn/conv2d.h"
#include "reigen/nn/kernels.h"

namespace reigen::models {

// A convolution without bias, padded so that a stride of 1 keeps the size.
class Conv final : public torch::nn::Conv2dImpl {
 public:
  Conv(std::int64_t inputs, std::int64_t outputs, std::int64_t size, std::int64_t stride);

  at::Tensor convolve(const at::Tensor& x) { return nn::conv2d(x, weight, {}, shape_); }

 private:
  nn::Conv2dShape shape_;
};

// How all norms of a network compute.
struct NormOptions {
  std::int64_t batch = 0;  // ResNetOptions::norm_batch
  nn::Kernels kernels = nn::Kernels::kAuto;
};

// Batch normalisation that computes its statistics separately for parts of the batch, each of at most
// NormOptions::batch samples.
class Norm final : public torch::nn::BatchNorm2dImpl {
 public:
  Norm(std::int64_t channels, const NormOptions& how) : BatchNorm2dImpl(channels), how_(how) {}

  // Returns norm(x) + residual. The residual may be undefined.
  at::Tensor normalise(const at::Tensor& x, const at::Tensor& residual = {}) { return by_parts(x, residual, false); }
  // Returns relu(norm(x) + residual).
  at::Tensor activate(const at::Tensor& x, const at::Tensor& residual = {}) { return by_parts(x, residual, true); }

 private:
  at::Tensor by_parts(const at::Tensor& x, const at::Tensor& residual, bool relu);
  // Adds and activates only with Reigen's kernels.
  at::Tensor one_part(const at::Tensor& x, const at::Tensor& residual, bool relu);

  NormOptions how_;
};

// The pictures as a convolution gets them. Reigen's kernels want "channels last", which convolutions of a GPU keep.
at::Tensor as_input(const at::Tensor& pictures, nn::Kernels kernels);

// One convolution of a block.
struct BlockLayer {
  std::int64_t outputs = 0;
  std::int64_t size = 3;
  std::int64_t stride = 1;
};

// The two kinds of blocks of He et al., 2015. `width` is that of the inner layers.
std::vector<BlockLayer> basic_block(std::int64_t width, std::int64_t stride);
std::vector<BlockLayer> bottleneck(std::int64_t width, std::int64_t stride);  // 4 · width outputs
inline constexpr std::int64_t kBottleneckFactor = 4;

// Returns relu(x' + norm(conv(... relu(norm(conv(x)))))). x' is x; if the block changes the shape, x' is
// norm(conv 1x1(x)). The names are torchvision's: conv1, bn1, conv2, ..., downsample.0, downsample.1.
class ResidualBlock final : public torch::nn::Module {
 public:
  ResidualBlock(std::int64_t inputs, const std::vector<BlockLayer>& layers, const NormOptions& norms);

  at::Tensor forward(const at::Tensor& input);

 private:
  nn::Kernels kernels_;
  std::vector<std::pair<std::shared_ptr<Conv>, std::shared_ptr<Norm>>> layers_;
  std::shared_ptr<Conv> shorten_;  // null if the block's output has the shape of its input
  std::shared_ptr<Norm> shorten_norm_;
};

// Sets the initial values: convolutions normal with variance 2 / fan_out, the rest by nn::initialize(). Weights whose
// name ends with `zeroed` are 0; an empty text zeroes none.
void initialize_residual(torch::nn::Module& model, std::uint64_t seed, const std::string& zeroed);

}  // namespace reigen::models
