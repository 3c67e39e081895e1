#include "reigen/models/mlp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reigen/base/error.h"

namespace reigen::models::mlp_test {
namespace {

constexpr MlpOptions kSmall = {.inputs = 6, .layers = 2, .dim = 5, .classes = 3};

TEST(MlpTest, HasTheParametersOfItsNamesake) {
  const Mlp model;
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  EXPECT_EQ(count, 8'407'050);
  EXPECT_EQ(model.units().size(), 9U);
  EXPECT_THAT(Mlp(kSmall).named_parameters().keys(),
              ::testing::ElementsAre("0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"));
}

TEST(MlpTest, ComputesWhatItsHeaderSays) {
  Mlp model(kSmall);
  model.to(at::kDouble);
  model.initialize(3);
  const auto p = model.named_parameters();
  const at::Tensor input = at::randn({4, 6}, at::kDouble);
  at::Tensor x = at::relu(at::linear(input, p["0.weight"], p["0.bias"]));
  x = at::relu(at::linear(x, p["2.weight"], p["2.bias"]));
  EXPECT_TRUE(at::equal(model.forward(input), at::linear(x, p["4.weight"], p["4.bias"])));
}

TEST(MlpTest, InitialValuesKeepTheSizeOfWhatGoesForward) {
  Mlp model({.inputs = 256, .layers = 8, .dim = 256, .classes = 256});
  model.initialize(0);
  const at::Tensor input = at::randn({64, 256});
  nn::Carry carry = {input};
  for (std::size_t i = 0; i + 1 < model.units().size(); ++i) carry = nn::call(model.units()[i], carry);
  const auto mean_square = carry.at(0).square().mean().item<double>();
  EXPECT_GT(mean_square, 0.4);  // it is 1 in expectation; no layer halves it
  EXPECT_LT(mean_square, 2.5);
}

TEST(MlpTest, BeginsByGuessingEveryClassAlike) {
  Mlp model({.inputs = 300, .layers = 1, .dim = 300, .classes = 300});
  model.initialize(0);
  const auto p = model.named_parameters();
  const double bound = 1 / std::sqrt(300.0);
  EXPECT_LE(p["2.weight"].abs().max().item<double>(), bound);
  EXPECT_GT(p["2.weight"].abs().max().item<double>(), 0.99 * bound);
  EXPECT_GT(p["0.weight"].abs().max().item<double>(), 2.4 * bound);
  EXPECT_TRUE(p["2.bias"].eq(0).all().item<bool>());
}

TEST(MlpTest, RefusesSizesBelowOne) {
  EXPECT_THROW(Mlp({.layers = 0}), InvalidArgument);
  EXPECT_THROW(Mlp({.dim = 0}), InvalidArgument);
}

}  // namespace
}  // namespace reigen::models::mlp_test
