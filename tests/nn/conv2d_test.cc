#include "reigen/nn/conv2d.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "reigen/base/error.h"

namespace reigen::nn::conv2d_test {
namespace {

at::Tensor leaf(at::IntArrayRef shape) { return at::randn(shape, at::kDouble).requires_grad_(); }

double difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(Conv2dTest, ValuesAndGradientsAreThoseOfAConvolution) {
  at::manual_seed(1);
  int products = 0;
  for (const std::int64_t height : {1, 2, 3, 5}) {
    for (const std::int64_t width : {1, 2, 4}) {
      for (const std::int64_t size : {1, 2, 3, 5}) {
        for (const std::int64_t stride : {1, 2, 3}) {
          for (const std::int64_t padding : {0, 1, 2, 3}) {
            if (height + 2 * padding < size || width + 2 * padding < size) continue;
            SCOPED_TRACE(::testing::Message() << "map " << height << " x " << width << ", weights " << size
                                              << ", stride " << stride << ", padding " << padding);
            const at::Tensor x = leaf({3, 4, height, width});
            const at::Tensor w = leaf({6, 4, size, size});
            const at::Tensor b = leaf({6});
            const at::Tensor y = nn::conv2d(x, w, b, {.stride = stride, .padding = padding});
            const at::Tensor expected = at::conv2d(x, w, b, stride, padding);
            ASSERT_EQ(y.sizes(), expected.sizes());
            EXPECT_LT(difference(y, expected), 1e-12);
            const at::Tensor along = at::randn(y.sizes(), at::kDouble);
            const auto found = torch::autograd::grad({y}, {x, w, b}, {along});
            const auto known = torch::autograd::grad({expected}, {x, w, b}, {along});
            for (std::size_t i = 0; i < known.size(); ++i) EXPECT_LT(difference(found[i], known[i]), 1e-12) << i;
            products += y.size(2) * y.size(3) > 1 && y.is_contiguous(at::MemoryFormat::ChannelsLast) ? 1 : 0;
          }
        }
      }
    }
  }
  EXPECT_GT(products, 50);  // both paths were taken
}

TEST(Conv2dTest, HasSecondDerivatives) {
  at::manual_seed(2);
  const at::Tensor x = leaf({2, 3, 2, 2});
  const at::Tensor w = leaf({4, 3, 3, 3});
  const auto penalty = [&](const at::Tensor& y) {
    const auto first = torch::autograd::grad({y.square().sum()}, {x}, {}, true, true);
    return torch::autograd::grad({first[0].square().sum()}, {w})[0];
  };
  const at::Tensor found = penalty(nn::conv2d(x, w, {}, {.padding = 1}));
  const at::Tensor known = penalty(at::conv2d(x, w, {}, 1, 1));
  EXPECT_LT(difference(found, known), 1e-9 * known.abs().max().item<double>());
}

// AccumulateGrad then uses the gradient without a copy, and data_parallel uses it in its place.
TEST(Conv2dTest, TheGradientOfTheWeightsLiesAsTheyDo) {
  for (const std::int64_t size : {1, 2, 3}) {
    const at::Tensor x = leaf({5, 8, size, size});
    const at::Tensor w = leaf({16, 8, 3, 3});
    nn::conv2d(x, w, {}, {.padding = 1}).sum().backward();
    EXPECT_TRUE(w.grad().is_contiguous()) << size;
  }
}

TEST(Conv2dTest, TakesAnEmptyBatchAndSixteenBits) {
  EXPECT_EQ(nn::conv2d(at::zeros({0, 2, 1, 1}), at::zeros({3, 2, 3, 3}), {}, {.padding = 1}).sizes().vec(),
            (std::vector<std::int64_t>{0, 3, 1, 1}));
  const at::Tensor x = at::randn({2, 4, 2, 2}).to(at::kBFloat16);
  const at::Tensor w = at::randn({4, 4, 3, 3}).to(at::kBFloat16);
  const at::Tensor y = nn::conv2d(x, w, {}, {.padding = 1});
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::allclose(y.to(at::kFloat), at::conv2d(x.to(at::kFloat), w.to(at::kFloat), {}, 1, 1), 0.02, 0.1));
}

TEST(Conv2dTest, RefusesWhatDoesNotFit) {
  const at::Tensor x = at::zeros({1, 2, 2, 2});
  EXPECT_THROW(nn::conv2d(x, at::zeros({3, 4, 1, 1}), {}), InvalidArgument);
  EXPECT_THROW(nn::conv2d(x, at::zeros({3, 2, 3, 3}), {}), InvalidArgument);
  EXPECT_THROW(nn::conv2d(x, at::zeros({3, 2, 1}), {}), InvalidArgument);
  EXPECT_THROW(nn::conv2d(x, at::zeros({3, 2, 1, 1}), at::zeros({1})), InvalidArgument);
  EXPECT_THROW(nn::conv2d(x, at::zeros({3, 2, 1, 1}), at::zeros({1, 3})), InvalidArgument);
  EXPECT_THROW(nn::conv2d(x, at::zeros({3, 2, 1, 1}), {}, {.stride = 0}), InvalidArgument);
  EXPECT_THROW(nn::conv2d(x, at::zeros({3, 2, 1, 1}), {}, {.padding = -1}), InvalidArgument);
  EXPECT_NO_THROW(nn::conv2d(x, at::zeros({3, 2, 3, 3}), {}, {.padding = 1}));
}

}  // namespace
}  // namespace reigen::nn::conv2d_test
