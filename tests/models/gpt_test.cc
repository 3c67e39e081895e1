#include "reigen/models/gpt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/nn/activation_checkpoint.h"
#include "reigen/nn/cross_entropy.h"

namespace reigen::models::gpt_test {
namespace {

constexpr GptOptions kSmall = {.vocab = 11, .layers = 2, .dim = 12, .heads = 3, .context = 8};

Gpt make(const GptOptions& options = kSmall) {
  Gpt model(options);
  model.to(at::kDouble);
  model.initialize(2);
  // The weights are larger than usual, so that every part affects the scores.
  for (const at::Tensor& parameter : model.parameters()) {
    if (parameter.dim() == 2) parameter.detach().mul_(20);
  }
  return model;
}

TEST(GptTest, HasTheParametersOfItsNamesake) {
  const Gpt model;
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  EXPECT_EQ(count, 10'795'776);
  EXPECT_EQ(model.units().size(), 8U);
  const Gpt small({.vocab = 11, .layers = 1, .dim = 12, .heads = 3, .context = 8});
  EXPECT_THAT(small.named_parameters().keys(),
              ::testing::UnorderedElementsAre("embed.tok.weight", "embed.pos.weight", "blocks.0.n1.weight",
                                              "blocks.0.n1.bias", "blocks.0.n2.weight", "blocks.0.n2.bias",
                                              "blocks.0.qkv.weight", "blocks.0.qkv.bias", "blocks.0.out.weight",
                                              "blocks.0.out.bias", "blocks.0.up.weight", "blocks.0.up.bias",
                                              "blocks.0.down.weight", "blocks.0.down.bias", "head.norm.weight",
                                              "head.norm.bias", "head.linear.weight"));
}

// The same decoder in plain operations, with attention written out.
at::Tensor reference(const Gpt& model, const at::Tensor& ids) {
  const auto p = model.named_parameters();
  const std::int64_t length = ids.size(1);
  const std::int64_t width = 12 / 3;
  const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
  at::Tensor x = at::embedding(p["embed.tok.weight"], ids) + p["embed.pos.weight"].narrow(0, 0, length);
  for (const char* name : {"blocks.0.", "blocks.1."}) {
    const auto of = [&](const std::string& what) { return p[name + what]; };
    const at::Tensor qkv =
        at::linear(at::layer_norm(x, {12}, of("n1.weight"), of("n1.bias")), of("qkv.weight"), of("qkv.bias"));
    std::vector<at::Tensor> heads;
    for (std::int64_t head = 0; head < 3; ++head) {
      const auto part = [&](std::int64_t which) { return qkv.narrow(2, which * 12 + head * width, width); };
      const at::Tensor scores = at::matmul(part(0), part(1).transpose(1, 2)) / std::sqrt(static_cast<double>(width));
      const at::Tensor seen = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
      heads.push_back(at::matmul(at::softmax(seen, -1), part(2)));
    }
    x = x + at::linear(at::cat(heads, 2), of("out.weight"), of("out.bias"));
    const at::Tensor up =
        at::linear(at::layer_norm(x, {12}, of("n2.weight"), of("n2.bias")), of("up.weight"), of("up.bias"));
    x = x + at::linear(at::gelu(up), of("down.weight"), of("down.bias"));
  }
  return at::matmul(at::layer_norm(x, {12}, p["head.norm.weight"], p["head.norm.bias"]), p["head.linear.weight"].t());
}

TEST(GptTest, ComputesWhatItsHeaderSays) {
  Gpt model = make();
  const at::Tensor ids = at::randint(11, {3, 7}, at::kLong);
  const at::Tensor scores = model.forward(ids);
  EXPECT_EQ(scores.sizes().vec(), (std::vector<std::int64_t>{3, 7, 11}));
  EXPECT_LE((scores - reference(model, ids)).abs().max().item<double>(), 1e-9);
}

// The losses of some steps with plain SGD.
std::vector<double> train(nn::Kernels kernels, at::ScalarType type,
                          const std::optional<nn::ActivationCheckpointOptions>& recomputes = {}) {
  at::manual_seed(4);
  GptOptions options = kSmall;
  options.kernels = kernels;
  Gpt model = make(options);
  model.to(type);
  std::optional<nn::ActivationCheckpoint> checkpoint;
  if (recomputes) checkpoint.emplace(model.units(), *recomputes);
  std::vector<double> losses;
  for (int step = 0; step < 5; ++step) {
    const at::Tensor ids = at::randint(11, {3, 8}, at::kLong);
    at::Tensor target = at::randint(11, {24}, at::kLong);
    target[5] = -100;
    const at::Tensor scores = model.forward(ids).flatten(0, 1);
    const at::Tensor loss = nn::are_fused(kernels, scores.device()) ? nn::cross_entropy(scores, target)
                                                                    : at::cross_entropy_loss(scores, target);
    loss.backward();
    losses.push_back(loss.item<double>());
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : model.parameters()) {
      parameter.sub_(parameter.grad(), 0.05);
      parameter.mutable_grad().reset();
    }
  }
  return losses;
}

TEST(GptTest, TrainsAlikeWithTheOperationsOfReigenAndOfLibTorch) {
  const auto expect_near = [](const std::vector<double>& found, const std::vector<double>& known, double apart) {
    ASSERT_EQ(found.size(), known.size());
    for (std::size_t i = 0; i < known.size(); ++i) EXPECT_NEAR(found[i], known[i], apart * known[i]) << i;
  };
  const std::vector<double> known = train(nn::Kernels::kTorch, at::kDouble);
  EXPECT_LT(known.back(), known.front());
  const std::vector<double> fused = train(nn::Kernels::kFused, at::kDouble);
  expect_near(fused, known, 1e-10);
  EXPECT_NE(fused, known);
  EXPECT_EQ(train(nn::Kernels::kFused, at::kDouble), fused);
  EXPECT_EQ(train(nn::Kernels::kAuto, at::kDouble), known);
  EXPECT_EQ(train(nn::Kernels::kFused, at::kDouble, nn::ActivationCheckpointOptions{}), fused);
  EXPECT_EQ(train(nn::Kernels::kFused, at::kDouble, nn::ActivationCheckpointOptions{.keep = nn::products()}), fused);
  expect_near(train(nn::Kernels::kFused, at::kFloat), train(nn::Kernels::kTorch, at::kFloat), 1e-4);
}

TEST(GptTest, SeesNothingOfWhatComesLater) {
  Gpt model = make();
  const at::Tensor ids = at::randint(11, {1, 8}, at::kLong);
  const at::Tensor before = model.forward(ids);
  const at::Tensor other = ids.clone();
  other[0][5] = (ids[0][5].item<std::int64_t>() + 1) % 11;
  const at::Tensor after = model.forward(other);
  EXPECT_TRUE(at::allclose(before.narrow(1, 0, 5), after.narrow(1, 0, 5), 0, 1e-12));
  EXPECT_FALSE(at::allclose(before.narrow(1, 5, 1), after.narrow(1, 5, 1), 0, 1e-6));
}

TEST(GptTest, BeginsByGuessingEveryTokenAlike) {
  Gpt model(kSmall);
  model.initialize(0);
  const at::Tensor ids = at::randint(11, {4, 8}, at::kLong);
  const at::Tensor loss = at::cross_entropy_loss(model.forward(ids).flatten(0, 1), ids.flatten());
  EXPECT_NEAR(loss.item<double>(), std::log(11.0), 0.1);
  const auto p = model.named_parameters();
  EXPECT_NEAR(p["blocks.0.up.weight"].detach().to(at::kDouble).square().mean().sqrt().item<double>(), 0.02, 0.002);
  EXPECT_NEAR(p["blocks.1.down.weight"].detach().to(at::kDouble).square().mean().sqrt().item<double>(), 0.01, 0.001);
  EXPECT_TRUE(p["blocks.0.qkv.bias"].eq(0).all().item<bool>());
  EXPECT_TRUE(p["head.norm.weight"].eq(1).all().item<bool>());
}

TEST(GptTest, RefusesWhatDoesNotFit) {
  EXPECT_THROW(Gpt({.dim = 10, .heads = 3}), InvalidArgument);
  EXPECT_THROW(Gpt({.vocab = 0}), InvalidArgument);
  Gpt model = make();
  EXPECT_THROW(model.forward(at::zeros({1, 9}, at::kLong)), InvalidArgument);
  EXPECT_THROW(model.forward(at::zeros({9}, at::kLong)), InvalidArgument);
}

}  // namespace
}  // namespace reigen::models::gpt_test
