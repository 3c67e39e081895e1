#include "models/residual_blocks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>

#include "reigen/nn/batch_norm.h"
#include "reigen/nn/init.h"

namespace reigen::models {

Conv::Conv(std::int64_t inputs, std::int64_t outputs, std::int64_t size, std::int64_t stride)
    : Conv2dImpl(torch::nn::Conv2dOptions(inputs, outputs, size).stride(stride).padding(size / 2).bias(false)),
      shape_{.stride = stride, .padding = size / 2} {}

at::Tensor Norm::by_parts(const at::Tensor& x, const at::Tensor& residual, bool relu) {
  const bool fused = nn::are_fused(how_.kernels, x.device());
  const std::int64_t parts = is_training() && how_.batch > 0 ? (x.size(0) + how_.batch - 1) / how_.batch : 1;
  at::Tensor y;
  if (parts <= 1) {
    y = one_part(x, fused ? residual : at::Tensor(), fused && relu);
  } else {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts), x.size(0) / parts);
    for (std::int64_t i = 0; i < x.size(0) % parts; ++i) ++sizes[static_cast<std::size_t>(i)];
    // The backward of a split is one concatenation.
    const std::vector<at::Tensor> of_x = at::split_with_sizes(x, sizes);
    std::vector<at::Tensor> of_residual(of_x.size());
    if (fused && residual.defined()) of_residual = at::split_with_sizes(residual, sizes);
    std::vector<at::Tensor> done;
    for (std::size_t i = 0; i < of_x.size(); ++i) done.push_back(one_part(of_x[i], of_residual[i], fused && relu));
    y = at::cat(done);
  }
  if (fused) return y;
  // LibTorch's addition and ReLU go over the whole batch.
  if (residual.defined()) y = y + residual;
  return relu ? y.relu_() : y;
}

at::Tensor Norm::one_part(const at::Tensor& x, const at::Tensor& residual, bool relu) {
  const bool own_statistics = is_training() && x.size(0) * x.size(2) * x.size(3) > 1;
  if (own_statistics) num_batches_tracked.add_(1);
  if (nn::are_fused(how_.kernels, x.device())) {
    return nn::batch_norm(x, {weight, bias, running_mean, running_var},
                          {.residual = residual,
                           .relu = relu,
                           .training = own_statistics,
                           .momentum = *options.momentum(),
                           .eps = options.eps()});
  }
  return at::batch_norm(x, weight, bias, running_mean, running_var, own_statistics, *options.momentum(), options.eps(),
                        false);
}

at::Tensor as_input(const at::Tensor& pictures, nn::Kernels kernels) {
  const bool converts = pictures.dim() == 4 && nn::are_fused(kernels, pictures.device());
  return converts ? pictures.contiguous(at::MemoryFormat::ChannelsLast) : pictures;
}

std::vector<BlockLayer> basic_block(std::int64_t width, std::int64_t stride) {
  return {{.outputs = width, .stride = stride}, {.outputs = width}};
}

// The convolution 3x3 has the stride. In the paper the first convolution 1x1 has it, which drops three of four pixels.
std::vector<BlockLayer> bottleneck(std::int64_t width, std::int64_t stride) {
  return {{.outputs = width, .size = 1},
          {.outputs = width, .stride = stride},
          {.outputs = kBottleneckFactor * width, .size = 1}};
}

ResidualBlock::ResidualBlock(std::int64_t inputs, const std::vector<BlockLayer>& layers, const NormOptions& norms)
    : kernels_(norms.kernels) {
  std::int64_t channels = inputs;
  std::int64_t stride = 1;
  for (const BlockLayer& layer : layers) {
    const std::size_t number = layers_.size() + 1;
    const auto conv = register_module(fmt::format("conv{}", number),
                                      std::make_shared<Conv>(channels, layer.outputs, layer.size, layer.stride));
    const auto norm = register_module(fmt::format("bn{}", number), std::make_shared<Norm>(layer.outputs, norms));
    layers_.emplace_back(conv, norm);
    channels = layer.outputs;
    stride *= layer.stride;
  }
  if (stride == 1 && channels == inputs) return;
  const auto downsample = register_module("downsample", std::make_shared<torch::nn::Module>());
  shorten_ = downsample->register_module("0", std::make_shared<Conv>(inputs, channels, 1, stride));
  shorten_norm_ = downsample->register_module("1", std::make_shared<Norm>(channels, norms));
}

at::Tensor ResidualBlock::forward(const at::Tensor& input) {
  const at::Tensor x = as_input(input, kernels_);  // a stage of a pipeline gets it in the usual format
  at::Tensor y = x;
  const auto& [last_conv, last_norm] = layers_.back();
  for (const auto& [conv, norm] : layers_) {
    if (conv != last_conv) y = norm->activate(conv->convolve(y));
  }
  y = last_conv->convolve(y);
  return last_norm->activate(y, shorten_ ? shorten_norm_->normalise(shorten_->convolve(x)) : x);
}

void initialize_residual(torch::nn::Module& model, std::uint64_t seed, const std::string& zeroed) {
  nn::initialize(model, seed);
  for (const auto& item : model.named_parameters()) {
    const at::Tensor values = item.value().detach();
    if (!zeroed.empty() && item.key().ends_with(zeroed)) values.zero_();
    if (values.dim() != 4) continue;
    const auto fan_out = static_cast<double>(values.size(0) * values.size(2) * values.size(3));
    nn::fill_normal(values, item.key(), seed, std::sqrt(2 / fan_out));
  }
}

}  // namespace reigen::models
