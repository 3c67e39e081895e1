#include "reigen/models/resnet18.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "reigen/nn/conv2d.h"
#include "reigen/nn/init.h"

namespace reigen::models {

namespace {

class Conv final : public torch::nn::Conv2dImpl {
 public:
  Conv(std::int64_t inputs, std::int64_t outputs, std::int64_t size, std::int64_t stride)
      : Conv2dImpl(torch::nn::Conv2dOptions(inputs, outputs, size).stride(stride).padding(size / 2).bias(false)),
        shape_{.stride = stride, .padding = size / 2} {}

  at::Tensor convolve(const at::Tensor& x) { return nn::conv2d(x, weight, {}, shape_); }

 private:
  nn::Conv2dShape shape_;
};

// Batch normalisation that computes its statistics separately for parts of the batch, each of at most `norm_batch`
// samples (ResNet18Options::norm_batch).
class Norm final : public torch::nn::BatchNorm2dImpl {
 public:
  Norm(std::int64_t channels, std::int64_t norm_batch) : BatchNorm2dImpl(channels), norm_batch_(norm_batch) {}

  at::Tensor normalise(const at::Tensor& x) {
    if (!is_training() || norm_batch_ == 0) return one_part(x);
    const std::int64_t parts = (x.size(0) + norm_batch_ - 1) / norm_batch_;
    if (parts <= 1) return one_part(x);
    std::vector<at::Tensor> done;
    for (const at::Tensor& part : x.tensor_split(parts)) done.push_back(one_part(part));
    return at::cat(done);
  }

 private:
  at::Tensor one_part(const at::Tensor& x) {
    const bool own_statistics = is_training() && x.size(0) * x.size(2) * x.size(3) > 1;
    if (own_statistics) num_batches_tracked.add_(1);
    return at::batch_norm(x, weight, bias, running_mean, running_var, own_statistics, *options.momentum(),
                          options.eps(), false);
  }

  std::int64_t norm_batch_;
};

class Stem final : public torch::nn::Module {
 public:
  explicit Stem(const ResNet18Options& options)
      : conv1_(register_module("conv1", std::make_shared<Conv>(3, options.width, 7, 2))),
        bn1_(register_module("bn1", std::make_shared<Norm>(options.width, options.norm_batch))) {}

  at::Tensor forward(const at::Tensor& images) {
    return at::max_pool2d(bn1_->normalise(conv1_->convolve(images)).relu_(), 3, 2, 1);
  }

 private:
  std::shared_ptr<Conv> conv1_;
  std::shared_ptr<Norm> bn1_;
};

class BasicBlock final : public torch::nn::Module {
 public:
  BasicBlock(std::int64_t inputs, std::int64_t outputs, std::int64_t stride, std::int64_t norm_batch)
      : conv1_(register_module("conv1", std::make_shared<Conv>(inputs, outputs, 3, stride))),
        bn1_(register_module("bn1", std::make_shared<Norm>(outputs, norm_batch))),
        conv2_(register_module("conv2", std::make_shared<Conv>(outputs, outputs, 3, 1))),
        bn2_(register_module("bn2", std::make_shared<Norm>(outputs, norm_batch))) {
    if (stride == 1) return;
    const auto downsample = register_module("downsample", std::make_shared<torch::nn::Module>());
    shorten_ = downsample->register_module("0", std::make_shared<Conv>(inputs, outputs, 1, stride));
    shorten_norm_ = downsample->register_module("1", std::make_shared<Norm>(outputs, norm_batch));
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = bn1_->normalise(conv1_->convolve(x)).relu_();
    const at::Tensor z = bn2_->normalise(conv2_->convolve(y));
    return (z + (shorten_ ? shorten_norm_->normalise(shorten_->convolve(x)) : x)).relu_();
  }

 private:
  std::shared_ptr<Conv> conv1_;
  std::shared_ptr<Norm> bn1_;
  std::shared_ptr<Conv> conv2_;
  std::shared_ptr<Norm> bn2_;
  std::shared_ptr<Conv> shorten_;  // null if the block's output has the shape of its input
  std::shared_ptr<Norm> shorten_norm_;
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
      const auto block = std::make_shared<BasicBlock>(channels, outputs, stride, options.norm_batch);
      units_.emplace_back(name + "." + number, layer->register_module(number, block));
      channels = outputs;
    }
  }
  units_.emplace_back("head", register_module("head", std::make_shared<ClassifierHead>(channels, options.classes)));
}

void ResNet18::initialize(std::uint64_t seed) {
  nn::initialize(*this, seed);
  for (const auto& item : named_parameters()) {
    const at::Tensor values = item.value().detach();
    if (item.key().ends_with(".bn2.weight")) values.zero_();
    if (values.dim() != 4) continue;
    const auto fan_out = static_cast<double>(values.size(0) * values.size(2) * values.size(3));
    nn::fill_normal(values, item.key(), seed, std::sqrt(2 / fan_out));
  }
}

at::Tensor ResNet18::forward(const at::Tensor& input) { return nn::fold(units_, input); }

}  // namespace reigen::models
