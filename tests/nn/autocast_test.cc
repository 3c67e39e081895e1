#include "reigen/nn/autocast.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "harness/torch.h"
#include "reigen/base/error.h"

namespace reigen::nn::autocast_test {
namespace {

TEST(Autocast, ComputesProductsIn16BitsAndLossesIn32) {
  torch::nn::Linear layer(8, 4);
  const at::Tensor input = torch::ones({2, 8});
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    at::Tensor loss;
    {
      const Autocast autocast(type);
      const at::Tensor output = layer(input);
      EXPECT_EQ(output.scalar_type(), type);
      loss = torch::nn::functional::cross_entropy(output, torch::zeros({2}, torch::kLong));
      EXPECT_EQ(loss.scalar_type(), at::kFloat);
    }
    loss.backward();
    EXPECT_EQ(layer->weight.grad().scalar_type(), at::kFloat);
    EXPECT_EQ(layer(input).scalar_type(), at::kFloat);
  }
}

TEST(Autocast, Nests) {
  {
    const Autocast outer(at::kBFloat16);
    {
      const Autocast inner(at::kHalf);
      EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
    }
    EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kBFloat16);
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

// The 16-bit copies of weights must not be used after the weights have changed.
TEST(Autocast, SeesNewWeightsInTheNextScope) {
  torch::nn::Linear layer(torch::nn::LinearOptions(4, 1).bias(false));
  const auto forward = [&] {
    const Autocast autocast;
    return layer(torch::ones({1, 4})).item<double>();
  };
  torch::NoGradGuard no_grad;
  layer->weight.fill_(1);
  EXPECT_EQ(forward(), 4);
  layer->weight.fill_(2);
  EXPECT_EQ(forward(), 8);
}

TEST(Autocast, OtherTypesAreRefused) {
  EXPECT_THROW(Autocast{at::kFloat}, InvalidArgument);
  EXPECT_THROW(Autocast(at::kBFloat16, at::kMeta), InvalidArgument);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

}  // namespace
}  // namespace reigen::nn::autocast_test
