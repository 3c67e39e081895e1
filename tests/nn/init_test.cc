#include "reigen/nn/init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "base/philox.h"
#include "nn/normal_quantile.h"
#include "reigen/base/error.h"

namespace reigen::nn {
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

// P(X <= x) by the C library's erfc, which fill_normal itself must not use: its last bit differs between machines.
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
  EXPECT_NEAR(values.abs().gt(1.0).to(at::kDouble).mean().item<double>(), 0.0455, 0.003);  // beyond two deviations
  for (const std::int64_t first : {1, 2, 7}) {
    const at::Tensor part = at::empty({11}, at::kDouble);
    fill_normal(part, "x.weight", 3, 0.5, first);
    EXPECT_TRUE(at::equal(part, values.narrow(0, first, 11))) << first;
  }
  const at::Tensor narrow = at::empty({1000});
  fill_normal(narrow, "x.weight", 3, 0.5);
  EXPECT_TRUE(at::equal(values.narrow(0, 0, 1000).to(at::kFloat), narrow));
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
}  // namespace reigen::nn
