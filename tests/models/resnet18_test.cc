#include "reigen/models/resnet18.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "reigen/base/error.h"

namespace reigen::models::resnet18_test {
namespace {

TEST(ResNet18Test, HasTheParametersAndBuffersOfItsNamesake) {
  const ResNet18 model;
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  EXPECT_EQ(count, 11'181'642);
  EXPECT_EQ(model.parameters().size(), 62U);
  EXPECT_EQ(model.buffers().size(), 60U);
  EXPECT_EQ(model.units().size(), 10U);
  const auto parameters = model.named_parameters();
  EXPECT_EQ(parameters["stem.conv1.weight"].sizes().vec(), (std::vector<std::int64_t>{64, 3, 7, 7}));
  EXPECT_EQ(parameters["layer2.0.downsample.0.weight"].sizes().vec(), (std::vector<std::int64_t>{128, 64, 1, 1}));
  EXPECT_EQ(parameters["layer4.1.conv2.weight"].sizes().vec(), (std::vector<std::int64_t>{512, 512, 3, 3}));
  EXPECT_EQ(parameters["head.fc.weight"].sizes().vec(), (std::vector<std::int64_t>{10, 512}));
  EXPECT_TRUE(parameters.contains("layer3.0.downsample.1.bias"));
  EXPECT_TRUE(model.named_buffers().contains("layer1.0.bn2.running_var"));
  EXPECT_TRUE(model.named_buffers().contains("stem.bn1.num_batches_tracked"));
}

// The same network in plain operations.
class Reference {
 public:
  Reference(const ResNet18& model, bool training) : p_(model.named_parameters()), b_(model.named_buffers()) {
    for (auto& item : b_) item.value() = item.value().clone();
    training_ = training;
  }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = at::conv2d(input, p_["stem.conv1.weight"], {}, 2, 3);
    x = at::max_pool2d(at::relu(norm(x, "stem.bn1")), 3, 2, 1);
    for (const char* layer : {"layer1", "layer2", "layer3", "layer4"}) {
      for (const char* number : {".0.", ".1."}) x = block(x, std::string(layer) + number);
    }
    return at::linear(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1), p_["head.fc.weight"], p_["head.fc.bias"]);
  }

 private:
  at::Tensor norm(const at::Tensor& x, const std::string& name) {
    return at::batch_norm(x, p_[name + ".weight"], p_[name + ".bias"], b_[name + ".running_mean"],
                          b_[name + ".running_var"], training_, 0.1, 1e-5, false);
  }
  at::Tensor block(const at::Tensor& x, const std::string& name) {
    const bool shrinks = p_.contains(name + "downsample.0.weight");
    const std::int64_t stride = shrinks ? 2 : 1;
    at::Tensor y = at::relu(norm(at::conv2d(x, p_[name + "conv1.weight"], {}, stride, 1), name + "bn1"));
    y = norm(at::conv2d(y, p_[name + "conv2.weight"], {}, 1, 1), name + "bn2");
    if (!shrinks) return at::relu(y + x);
    return at::relu(y + norm(at::conv2d(x, p_[name + "downsample.0.weight"], {}, stride), name + "downsample.1"));
  }

  torch::OrderedDict<std::string, at::Tensor> p_;
  torch::OrderedDict<std::string, at::Tensor> b_;
  bool training_;
};

ResNet18 make(std::int64_t norm_batch) {
  ResNet18 model({.classes = 7, .width = 4, .norm_batch = norm_batch});
  model.to(at::kDouble);
  model.initialize(5);
  for (const auto& item : model.named_parameters()) {
    if (item.key().ends_with("bn2.weight")) item.value().detach().fill_(0.7);  // so that every block has an effect
  }
  return model;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(ResNet18Test, ComputesWhatItsHeaderSays) {
  const at::Tensor input = at::randn({5, 3, 32, 32}, at::kDouble);
  for (const bool training : {true, false}) {
    ResNet18 model = make(0);
    model.train(training);
    const at::Tensor expected = Reference(model, training).forward(input);
    EXPECT_EQ(expected.sizes().vec(), (std::vector<std::int64_t>{5, 7}));
    EXPECT_LE(largest_difference(model.forward(input), expected), 1e-10);
  }
}

TEST(ResNet18Test, APartOfTheBatchIsNormalisedAlone) {
  const at::Tensor input = at::randn({9, 3, 32, 32}, at::kDouble);
  ResNet18 parts = make(3);
  ResNet18 alone = make(0);
  std::vector<at::Tensor> expected;
  for (const at::Tensor& part : input.split(3)) expected.push_back(alone.forward(part));
  EXPECT_LE(largest_difference(parts.forward(input), at::cat(expected)), 1e-10);
  EXPECT_LE(largest_difference(parts.named_buffers()["layer4.0.bn1.running_var"],
                               alone.named_buffers()["layer4.0.bn1.running_var"]),
            1e-10);
  EXPECT_EQ(parts.named_buffers()["stem.bn1.num_batches_tracked"].item<std::int64_t>(), 3);
}

TEST(ResNet18Test, OneSampleHasNoVarianceWhereItIsOnePixel) {
  ResNet18 model = make(32);
  const at::Tensor scores = model.forward(at::randn({1, 3, 32, 32}, at::kDouble));
  scores.sum().backward();
  EXPECT_TRUE(scores.isfinite().all().item<bool>());
  for (const at::Tensor& buffer : model.buffers()) EXPECT_TRUE(buffer.isfinite().all().item<bool>());
  for (const at::Tensor& parameter : model.parameters()) EXPECT_TRUE(parameter.grad().isfinite().all().item<bool>());
}

TEST(ResNet18Test, EveryBlockBeginsAsTheIdentity) {
  ResNet18 model({.width = 16});
  model.initialize(1);
  const auto p = model.named_parameters();
  const at::Tensor conv = p["layer3.1.conv1.weight"].detach().to(at::kDouble);
  EXPECT_NEAR(conv.square().mean().item<double>(), 2.0 / (64 * 9), 0.05 * 2.0 / (64 * 9));
  EXPECT_TRUE(p["stem.bn1.weight"].eq(1).all().item<bool>());
  EXPECT_TRUE(p["layer2.0.bn1.weight"].eq(1).all().item<bool>());
  EXPECT_TRUE(p["layer2.0.downsample.1.weight"].eq(1).all().item<bool>());
  EXPECT_TRUE(p["layer2.0.bn2.weight"].eq(0).all().item<bool>());
  EXPECT_TRUE(p["stem.bn1.bias"].eq(0).all().item<bool>());
  EXPECT_LE(p["head.fc.weight"].abs().max().item<double>(), 1 / std::sqrt(128.0));
  EXPECT_THROW(ResNet18({.width = 0}), InvalidArgument);
}

}  // namespace
}  // namespace reigen::models::resnet18_test
