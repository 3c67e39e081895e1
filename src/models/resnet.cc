#include "reigen/models/resnet.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "base/check.h"
#include "models/residual_blocks.h"
#include "reigen/nn/init.h"

namespace reigen::models {
namespace {

struct Depth {
  std::int64_t layers;
  std::array<int, 4> blocks;  // of each stage
  bool has_bottlenecks;
};
constexpr Depth kDepths[] = {{18, {2, 2, 2, 2}, false},
                             {34, {3, 4, 6, 3}, false},
                             {50, {3, 4, 6, 3}, true},
                             {101, {3, 4, 23, 3}, true},
                             {152, {3, 8, 36, 3}, true}};

const Depth& depth_of(const ResNetOptions& options) {
  const auto* const found = std::find_if(std::begin(kDepths), std::end(kDepths),
                                         [&](const Depth& depth) { return depth.layers == options.depth; });
  if (found != std::end(kDepths)) return *found;
  throw InvalidArgument(Report{.what = "a ResNet of this depth is not known",
                               .got = fmt::format("{} layers", options.depth),
                               .expected = "18, 34, 50, 101 or 152",
                               .fix = "choose one of these depths"});
}

}  // namespace

ResNet::ResNet(const ResNetOptions& options) : options_(options) {
  const Depth& depth = depth_of(options);
  REIGEN_CHECK(options.classes >= 1 && options.width >= 1 && options.norm_batch >= 0,
               "a ResNet of {} classes, width {} and norm_batch {}: the first two must be at least 1, the last 0",
               options.classes, options.width, options.norm_batch);
  REIGEN_CHECK(options.classifier_deviation >= 0, "a ResNet whose classifier has the standard deviation {}: at least 0",
               options.classifier_deviation);
  const auto conv = register_module("conv1", std::make_shared<Conv>(3, options.width, 7, 2));
  units_.emplace_back("conv1", conv, [m = conv.get(), kernels = options.kernels](const nn::Carry& x) {
    return nn::Carry{m->convolve(as_input(x.at(0), kernels))};
  });
  const NormOptions norms{.batch = options.norm_batch, .kernels = options.kernels};
  const auto norm = register_module("bn1", std::make_shared<Norm>(options.width, norms));
  units_.emplace_back("bn1", norm, [m = norm.get()](const nn::Carry& x) {
    return nn::Carry{at::max_pool2d(m->activate(x.at(0)), 3, 2, 1)};
  });
  std::int64_t channels = options.width;
  for (std::size_t stage = 0; stage < depth.blocks.size(); ++stage) {
    const std::string name = fmt::format("layer{}", stage + 1);
    const auto layer = register_module(name, std::make_shared<torch::nn::Module>());
    const std::int64_t width = options.width << stage;
    for (int number = 0; number < depth.blocks[stage]; ++number) {
      const std::int64_t stride = stage > 0 && number == 0 ? 2 : 1;
      const auto layers = depth.has_bottlenecks ? bottleneck(width, stride) : basic_block(width, stride);
      const auto block = std::make_shared<ResidualBlock>(channels, layers, norms);
      units_.emplace_back(fmt::format("{}.{}", name, number), layer->register_module(std::to_string(number), block));
      channels = layers.back().outputs;
    }
  }
  const auto fc = register_module("fc", std::make_shared<torch::nn::LinearImpl>(channels, options.classes));
  units_.emplace_back("fc", fc, [m = fc.get()](const nn::Carry& x) {
    return nn::Carry{m->forward(x.at(0).mean({2, 3}))};
  });
}

void ResNet::initialize(std::uint64_t seed) {
  const char* const last_norm = depth_of(options_).has_bottlenecks ? ".bn3.weight" : ".bn2.weight";
  initialize_residual(*this, seed, options_.zero_last_norm ? last_norm : "");
  if (options_.classifier_deviation == 0) return;
  const auto parameters = named_parameters();
  nn::fill_normal(parameters["fc.weight"].detach(), "fc.weight", seed, options_.classifier_deviation);
  parameters["fc.bias"].detach().zero_();
}

at::Tensor ResNet::forward(const at::Tensor& input) { return nn::fold(units_, input); }

}  // namespace reigen::models
