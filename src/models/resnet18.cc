#include "reigen/models/resnet18.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>

#include "base/check.h"
#include "models/residual_blocks.h"

namespace reigen::models {

namespace {

NormOptions norms_of(const ResNet18Options& options) {
  return {.batch = options.norm_batch, .kernels = options.kernels};
}

class Stem final : public torch::nn::Module {
 public:
  explicit Stem(const ResNet18Options& options)
      : conv1_(register_module("conv1", std::make_shared<Conv>(3, options.width, 7, 2))),
        bn1_(register_module("bn1", std::make_shared<Norm>(options.width, norms_of(options)))),
        kernels_(options.kernels) {}

  at::Tensor forward(const at::Tensor& images) {
    return at::max_pool2d(bn1_->activate(conv1_->convolve(as_input(images, kernels_))), 3, 2, 1);
  }

 private:
  std::shared_ptr<Conv> conv1_;
  std::shared_ptr<Norm> bn1_;
  nn::Kernels kernels_;
};

class ClassifierHead final : public torch::nn::Module {
 public:
  ClassifierHead(std::int64_t channels, std::int64_t classes)
      : fc_(register_module("fc", std::make_shared<torch::nn::LinearImpl>(channels, classes))) {}

  at::Tensor forward(const at::Tensor& x) { return fc_->forward(x.mean({2, 3})); }

 private:
  std::shared_ptr<torch::nn::LinearImpl> fc_;
};

}  // namespace

ResNet18::ResNet18(const ResNet18Options& options) {
  REIGEN_CHECK(options.classes >= 1 && options.width >= 1 && options.norm_batch >= 0,
               "a ResNet-18 of {} classes, width {} and norm_batch {}: the first two must be at least 1, the last 0",
               options.classes, options.width, options.norm_batch);
  units_.emplace_back("stem", register_module("stem", std::make_shared<Stem>(options)));
  std::int64_t channels = options.width;
  for (int stage = 0; stage < 4; ++stage) {
    const std::string name = fmt::format("layer{}", stage + 1);
    const auto layer = register_module(name, std::make_shared<torch::nn::Module>());
    const std::int64_t outputs = options.width << stage;
    for (const char* number : {"0", "1"}) {
      const std::int64_t stride = outputs == channels ? 1 : 2;
      const auto block = std::make_shared<ResidualBlock>(channels, basic_block(outputs, stride), norms_of(options));
      units_.emplace_back(name + "." + number, layer->register_module(number, block));
      channels = outputs;
    }
  }
  units_.emplace_back("head", register_module("head", std::make_shared<ClassifierHead>(channels, options.classes)));
}

void ResNet18::initialize(std::uint64_t seed) { initialize_residual(*this, seed, ".bn2.weight"); }

at::Tensor ResNet18::forward(const at::Tensor& input) { return nn::fold(units_, input); }

}  // namespace reigen::models
