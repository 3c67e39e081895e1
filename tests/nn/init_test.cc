#include "reigen/nn/init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "nn/normal_quantile.h"
#include "reigen/base/error.h"

namespace reigen::nn::init_test {
namespace {

// Known answers of Random123's own test file (kat_vectors, philox4x32 10).
TEST(PhiloxTest, GivesTheKnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(base::philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(base::philox(~0ULL, ~0ULL, ~0ULL), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(base::philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

struct TwoLayers : torch::nn::Module {
  explicit TwoLayers(bool other_order = false) {
    if (other_order) register_module("extra", torch::nn::Linear(4, 4));
    conv = register_module("conv", torch::nn::Conv2d(2, 8, 3));
    fc = register_module("fc", torch::nn::Linear(50, 20));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear fc{nullptr};
};

TEST(InitTest, ValuesDependOnNameSeedAndIndexOnly) {
  TwoLayers a;
  TwoLayers b(true);
  initialize(a, 7);
  initialize(b, 7);
  EXPECT_TRUE(at::equal(a.conv->weight, b.conv->weight));
  EXPECT_TRUE(at::equal(a.fc->bias, b.fc->bias));
  EXPECT_FALSE(at::equal(a.fc->weight.flatten().narrow(0, 0, 100), a.conv->weight.flatten().narrow(0, 0, 100)));
  const at::Tensor before = a.fc->weight.detach().clone();
  initialize(a, 8);
  EXPECT_FALSE(at::equal(a.fc->weight, before));
}

TEST(InitTest, APartGetsThePartsValues) {
  const at::Tensor whole = at::empty({40});
  fill_uniform(whole, "x.weight", 5, 0.5);
  for (const std::int64_t first : {0, 1, 2, 3, 4, 17}) {
    const at::Tensor part = at::empty({11});
    fill_uniform(part, "x.weight", 5, 0.5, first);
    EXPECT_TRUE(at::equal(part, whole.narrow(0, first, 11))) << first;
  }
}

TEST(InitTest, BothPrecisionsStartFromTheSameValues) {
  const at::Tensor narrow = at::empty({100});
  const at::Tensor wide = at::empty({100}, at::kDouble);
  fill_uniform(narrow, "w", 1, 0.1);
  fill_uniform(wide, "w", 1, 0.1);
  EXPECT_TRUE(at::equal(wide.to(at::kFloat), narrow));
}

TEST(InitTest, ValuesFillTheRangeOfLibTorchsDefaults) {
  TwoLayers net;
  initialize(net, 0);
  const double bound = 1 / std::sqrt(50.0);
  const at::Tensor weight = net.fc->weight.detach().to(at::kDouble);
  EXPECT_LE(weight.abs().max().item<double>(), bound);
  EXPECT_GT(weight.abs().max().item<double>(), 0.98 * bound);
  EXPECT_NEAR(weight.mean().item<double>(), 0, 4 * bound / std::sqrt(3 * 1000.0));  // four standard errors
  EXPECT_NEAR(weight.var().item<double>(), bound * bound / 3, 0.15 * bound * bound / 3);
  EXPECT_LE(net.conv->bias.abs().max().item<double>(), 1 / std::sqrt(18.0));
  EXPECT_GT(net.conv->bias.abs().max().item<double>(), 0);
}

TEST(InitTest, NormalisationsStartAsTheIdentity) {
  struct Normed : torch::nn::Module {
    Normed() { norm = register_module("norm", torch::nn::BatchNorm2d(4)); }
    torch::nn::BatchNorm2d norm{nullptr};
  } net;
  net.norm->weight.detach().fill_(7);
  net.norm->bias.detach().fill_(7);
  initialize(net, 0);
  EXPECT_TRUE(at::equal(net.norm->weight, at::ones({4})));
  EXPECT_TRUE(at::equal(net.norm->bias, at::zeros({4})));
}

// P(X <= x) is computed by the C library's erfc. fill_normal must not use erfc, whose last bit differs between
// machines.
TEST(InitTest, TheQuantileIsTheInverseOfTheNormalDistribution) {
  for (const double p : {0x1p-33, 1e-9, 1e-6, 0.001, 0.0749, 0.0751, 0.2, 0.5, 0.77, 0.9249, 0.9251, 0.999, 1 - 1e-9}) {
    const double x = normal_quantile(p);
    EXPECT_NEAR(0.5 * std::erfc(-x / std::sqrt(2.0)) / p, 1, 2e-7 * (1 + x * x)) << p;
    EXPECT_NEAR(normal_quantile(1 - p), -x, 1e-6 * (1 + std::abs(x))) << p;
  }
  EXPECT_EQ(normal_quantile(0.5), 0);
}

TEST(InitTest, NormalValues) {
  const at::Tensor values = at::empty({200'000}, at::kDouble);
  fill_normal(values, "x.weight", 3, 0.5);
  const double n = 200'000;
  EXPECT_NEAR(values.mean().item<double>(), 0, 5 * 0.5 / std::sqrt(n));
  EXPECT_NEAR(values.square().mean().item<double>(), 0.25, 5 * 0.25 * std::sqrt(2 / n));
  EXPECT_NEAR(values.abs().gt(1.0).to(at::kDouble).mean().item<double>(), 0.0455, 0.003);  // beyond 2 deviations
  for (const std::int64_t first : {1, 2, 7}) {
    const at::Tensor part = at::empty({11}, at::kDouble);
    fill_normal(part, "x.weight", 3, 0.5, first);
    EXPECT_TRUE(at::equal(part, values.narrow(0, first, 11))) << first;
  }
  const at::Tensor narrow = at::empty({1000});
  fill_normal(narrow, "x.weight", 3, 0.5);
  EXPECT_TRUE(at::equal(values.narrow(0, 0, 1000).to(at::kFloat), narrow));
}

// A module with the values of LibTorch's constructor, and a name.
struct Built {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
};

template <class Module>
Built built(const std::string& name, Module module) {
  return {name, module.ptr()};
}

std::vector<Built> modules_of_libtorch() {
  using namespace torch::nn;
  return {built("Linear", Linear(40, 60)),
          built("Bilinear", Bilinear(30, 20, 10)),
          built("Conv1d", Conv1d(Conv1dOptions(16, 24, 5).groups(2))),
          built("Conv2d", Conv2d(16, 24, 3)),
          built("Conv3d", Conv3d(8, 12, 3)),
          built("ConvTranspose1d", ConvTranspose1d(16, 24, 5)),
          built("ConvTranspose2d", ConvTranspose2d(ConvTranspose2dOptions(16, 24, 3).groups(2))),
          built("ConvTranspose3d", ConvTranspose3d(8, 12, 3)),
          built("Embedding", Embedding(EmbeddingOptions(60, 40).padding_idx(3))),
          built("EmbeddingBag", EmbeddingBag(EmbeddingBagOptions(60, 40).padding_idx(5))),
          built("RNN", RNN(RNNOptions(20, 30).num_layers(2))),
          built("LSTM", LSTM(LSTMOptions(20, 30).num_layers(2).bidirectional(true).proj_size(12))),
          built("GRU", GRU(GRUOptions(20, 30).bias(false))),
          built("RNNCell", RNNCell(20, 40)),
          built("LSTMCell", LSTMCell(20, 30)),
          built("GRUCell", GRUCell(20, 30)),
          built("MultiheadAttention", MultiheadAttention(MultiheadAttentionOptions(48, 4).add_bias_kv(true))),
          built("MultiheadAttention of other sizes",
                MultiheadAttention(MultiheadAttentionOptions(48, 4).kdim(32).vdim(24))),
          built("TransformerEncoderLayer",
                TransformerEncoderLayer(TransformerEncoderLayerOptions(32, 4).dim_feedforward(64))),
          built("TransformerDecoderLayer",
                TransformerDecoderLayer(TransformerDecoderLayerOptions(32, 4).dim_feedforward(64))),
          built("TransformerEncoder", TransformerEncoder(TransformerEncoderOptions(
                                          TransformerEncoderLayerOptions(32, 4).dim_feedforward(64), 2))),
          built("Transformer",
                Transformer(TransformerOptions(32, 4).num_encoder_layers(1).num_decoder_layers(1).dim_feedforward(64))),
          built("BatchNorm1d", BatchNorm1d(9)),
          built("BatchNorm3d", BatchNorm3d(9)),
          built("InstanceNorm2d", InstanceNorm2d(InstanceNorm2dOptions(9).affine(true))),
          built("GroupNorm", GroupNorm(3, 9)),
          built("LayerNorm of two dimensions", LayerNorm(LayerNormOptions({5, 7}))),
          built("PReLU", PReLU(PReLUOptions().num_parameters(6).init(0.4))),
          built("AdaptiveLogSoftmaxWithLoss",
                AdaptiveLogSoftmaxWithLoss(AdaptiveLogSoftmaxWithLossOptions(32, 60, {20, 40}).div_value(2.0)))};
}

// Checks that our values have LibTorch's distribution. If LibTorch sets a constant, our value is that constant.
// Otherwise mean, deviation and the largest magnitude must agree like those of two samples.
void expect_alike(const at::Tensor& ours, const at::Tensor& theirs, const std::string& name) {
  ASSERT_EQ(ours.sizes(), theirs.sizes()) << name;
  const at::Tensor a = ours.detach().to(at::kDouble).flatten();
  const at::Tensor b = theirs.detach().to(at::kDouble).flatten();
  const double deviation = b.std(false).item<double>();
  if (deviation == 0) {
    EXPECT_TRUE(at::equal(a, b)) << name;
    return;
  }
  EXPECT_FALSE(at::equal(a, b)) << name;
  const double n = static_cast<double>(a.numel());
  // For n values, the tolerance is five standard errors of the mean and of the deviation (larger for normal values).
  EXPECT_NEAR(a.mean().item<double>(), b.mean().item<double>(), 5 * deviation * std::sqrt(2 / n)) << name;
  EXPECT_NEAR(a.std(false).item<double>() / deviation, 1, 5 / std::sqrt(n)) << name;
  // Normal values reach beyond two deviations; uniform values end at 1.73.
  const auto reach = [](const at::Tensor& x) { return x.abs().max().item<double>() / x.std(false).item<double>(); };
  if (a.numel() > 1000) {
    EXPECT_EQ(reach(a) > 2.2, reach(b) > 2.2) << name;
  }
}

TEST(InitTest, EveryModuleOfLibTorchStartsByItsOwnRule) {
  at::manual_seed(5);
  for (const Built& one : modules_of_libtorch()) {
    std::vector<std::pair<std::string, at::Tensor>> theirs;
    for (const auto& item : one.module->named_parameters()) {
      theirs.emplace_back(item.key(), item.value().detach().clone());
      item.value().detach().fill_(77);  // an uninitialized parameter keeps this value, so the test finds it
    }
    EXPECT_FALSE(theirs.empty()) << one.name;
    ASSERT_NO_THROW(initialize(*one.module, 3)) << one.name;
    const auto ours = one.module->named_parameters();
    for (const auto& [name, values] : theirs) expect_alike(ours[name], values, one.name + ": " + name);
  }
}

TEST(InitTest, PaddingIsZeroAndGivenWeightsStay) {
  torch::nn::Embedding padded(torch::nn::EmbeddingOptions(6, 4).padding_idx(3));
  initialize(*padded, 1);
  EXPECT_TRUE(at::equal(padded->weight[3], at::zeros({4})));
  EXPECT_GT(padded->weight[2].abs().min().item<double>(), 0);
  const at::Tensor given = at::arange(12, at::kFloat).view({3, 4});
  auto embedding = torch::nn::Embedding::from_pretrained(given);
  initialize(*embedding, 1);
  EXPECT_TRUE(at::equal(embedding->weight, given));
}

TEST(InitTest, ValuesOfLibTorchsModulesDependOnTheirNamesInTheWholeModel) {
  struct Model : torch::nn::Module {
    explicit Model(bool more) {
      if (more) register_module("more", torch::nn::GRU(4, 4));
      attention = register_module("attention", torch::nn::MultiheadAttention(16, 2));
      recurrent = register_module("recurrent", torch::nn::LSTM(8, 8));
    }
    torch::nn::MultiheadAttention attention{nullptr};
    torch::nn::LSTM recurrent{nullptr};
  } a(false), b(true);
  initialize(a, 2);
  initialize(b, 2);
  EXPECT_TRUE(at::equal(a.attention->in_proj_weight, b.attention->in_proj_weight));
  const auto of_a = a.recurrent->named_parameters();
  const auto of_b = b.recurrent->named_parameters();
  EXPECT_TRUE(at::equal(of_a["weight_hh_l0"], of_b["weight_hh_l0"]));
  EXPECT_FALSE(at::equal(of_a["weight_hh_l0"], of_a["weight_ih_l0"]));
}

TEST(InitTest, WhatHasNoRuleIsRefusedByName) {
  struct Odd : torch::nn::Module {
    Odd() { register_parameter("scale", at::ones({4})); }
  } net;
  EXPECT_THAT([&] { initialize(net, 0); }, ::testing::Throws<InvalidArgument>(::testing::Property(
                                               &std::exception::what, ::testing::HasSubstr("scale"))));
  EXPECT_THROW(fill_uniform(at::empty({4}, at::kInt), "i", 0, 1), InvalidArgument);
  EXPECT_THROW(fill_uniform(at::empty({4, 4}).t(), "t", 0, 1), InvalidArgument);
}

}  // namespace
}  // namespace reigen::nn::init_test
