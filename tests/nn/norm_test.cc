#include "reigen/nn/norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>

#include "nn/fused.h"
#include "reigen/base/error.h"
#include "reigen/nn/autocast.h"

namespace reigen::nn::norm_test {
namespace {

using namespace fused_testing;

struct Size {
  std::int64_t rows, columns;
};
// Sizes around packs of elements, blocks of rows and the threads of a team.
const Size kSizes[] = {{1, 1}, {3, 3}, {5, 17}, {33, 8}, {40, 1000}, {2, 1031}, {65, 32}, {0, 7}};

at::Tensor layer(const Tensors& t) { return at::layer_norm(t[0], {t[0].size(-1)}, t[1], t[2], 1e-5); }
at::Tensor rms(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const at::Tensor n = x * (x.square().mean(-1, true) + eps).rsqrt();
  return weight.defined() ? n * weight : n;
}

Tensors values_of(const Size& size) {
  return {at::randn({size.rows, size.columns}, at::kDouble) * 2 + 0.5, at::randn({size.columns}, at::kDouble) + 1,
          at::randn({size.columns}, at::kDouble), at::randn({size.rows, size.columns}, at::kDouble)};
}

// Sums of 16-bit values over rows are compared with their size, which `factor` is for.
double factor_of(const Size& size, at::ScalarType type) { return type == at::kDouble && size.columns > 1 ? 1 : 4; }

// The comparison of these tests, for the gradients of a mean over many rows.
TEST(FusedTesting, ZerosAreNotCloseToSmallGradients) {
  const at::Tensor known = at::full({4}, 1e-3, at::kDouble);
  for (const at::ScalarType type : kTypes) {
    expect_close(known.to(type), known, rounding_of(type), "rounded");
    EXPECT_NONFATAL_FAILURE(expect_close(at::zeros({4}, type), known, rounding_of(type), "zeros"), "zeros");
  }
  expect_close(at::full({4}, 1e-18, at::kDouble), at::zeros({4}, at::kDouble), 1e-12, "a reference of 0");
}

TEST(NormTest, LayerNormIsThatOfLibTorch) {
  at::manual_seed(1);
  for (const Size& size : kSizes) {
    for (const at::ScalarType type : kTypes) {
      Tensors values = values_of(size);
      values.resize(3);
      compare([](const Tensors& t) { return Tensors{nn::layer_norm(t[0], t[1], t[2])}; },
              [](const Tensors& t) { return Tensors{layer(t)}; }, values, type, name_of(type, size.rows, size.columns),
              factor_of(size, type), least_of(size.columns));
    }
  }
}

TEST(NormTest, TheSumIsNormalisedAndGoesOn) {
  at::manual_seed(2);
  for (const Size& size : kSizes) {
    for (const at::ScalarType type : kTypes) {
      const std::string name = name_of(type, size.rows, size.columns);
      // The sum is rounded before it is normalised. In the reference it is rounded too, but has the gradient of x + d.
      const auto sum_of = [type](const Tensors& t) {
        const at::Tensor sum = t[0] + t[3];
        return sum + (sum.to(type).to(at::kDouble) - sum).detach();
      };
      compare(
          [](const Tensors& t) {
            const AddedNorm both = add_layer_norm(t[0], t[3], t[1], t[2]);
            return Tensors{both.sum, both.output};
          },
          [&](const Tensors& t) {
            const at::Tensor sum = sum_of(t);
            return Tensors{sum, layer({sum, t[1], t[2]})};
          },
          values_of(size), type, "layer norm " + name, factor_of(size, type), least_of(size.columns));
      Tensors values = values_of(size);
      compare(
          [](const Tensors& t) {
            const AddedNorm both = add_rms_norm(t[0], t[2], t[1]);
            return Tensors{both.sum, both.output};
          },
          [&](const Tensors& t) {
            const at::Tensor sum = sum_of({t[0], {}, {}, t[2]});
            return Tensors{sum, rms(sum, t[1], 1e-6)};
          },
          {values[0], values[1], values[3]}, type, "rms norm " + name, factor_of(size, type), least_of(size.columns));
    }
  }
}

TEST(NormTest, RmsNormIsItsFormula) {
  at::manual_seed(3);
  for (const Size& size : kSizes) {
    for (const at::ScalarType type : kTypes) {
      Tensors values = values_of(size);
      values.resize(2);
      compare([](const Tensors& t) { return Tensors{nn::rms_norm(t[0], t[1])}; },
              [](const Tensors& t) { return Tensors{rms(t[0], t[1], 1e-6)}; }, values, type,
              name_of(type, size.rows, size.columns), factor_of(size, type), least_of(size.columns));
    }
  }
}

TEST(NormTest, WeightAndBiasMayBeMissing) {
  at::manual_seed(4);
  const Tensors values = {at::randn({4, 3, 10}, at::kDouble)};
  compare([](const Tensors& t) { return Tensors{nn::layer_norm(t[0], {}, {})}; },
          [](const Tensors& t) { return Tensors{at::layer_norm(t[0], {10})}; }, values, at::kDouble, "layer norm");
  compare([](const Tensors& t) { return Tensors{nn::rms_norm(t[0], {})}; },
          [](const Tensors& t) { return Tensors{rms(t[0], {}, 1e-6)}; }, values, at::kDouble, "rms norm");
  const Tensors with_weight = {values[0], at::randn({10}, at::kDouble)};
  compare([](const Tensors& t) { return Tensors{nn::layer_norm(t[0], t[1], {})}; },
          [](const Tensors& t) { return Tensors{at::layer_norm(t[0], {10}, t[1])}; }, with_weight, at::kDouble,
          "weight");
}

TEST(NormTest, ReadsTensorsWithGaps) {
  at::manual_seed(5);
  const Tensors values = {at::randn({6, 5, 4}, at::kDouble), at::randn({12}, at::kDouble), at::randn({12}, at::kDouble),
                          at::randn({5, 4, 6}, at::kDouble)};
  const auto parted = [](const Tensors& t) {
    return Tensors{t[0].transpose(0, 2), t[1].slice(0, 0, 12, 2), t[2].slice(0, 1, 12, 2), t[3].transpose(0, 1)};
  };
  compare(
      [&](const Tensors& t) {
        const Tensors p = parted(t);
        const AddedNorm both = add_layer_norm(p[0], p[3], p[1], p[2]);
        return Tensors{both.output.transpose(0, 1), both.sum};
      },
      [&](const Tensors& t) {
        const Tensors p = parted(t);
        const at::Tensor sum = p[0] + p[3];
        return Tensors{layer({sum, p[1], p[2]}).transpose(0, 1), sum};
      },
      values, at::kDouble, "with gaps");
}

TEST(NormTest, UsesOnlyOneOfItsResults) {
  at::manual_seed(6);
  const Tensors t = leaves(values_of({5, 17}), at::kDouble);
  add_layer_norm(t[0], t[3], t[1], t[2]).sum.square().sum().backward();
  EXPECT_TRUE(at::allclose(t[0].grad(), 2 * (t[0] + t[3])));
  EXPECT_TRUE(at::equal(t[0].grad(), t[3].grad()));
  EXPECT_FALSE(t[1].grad().defined());
  const Tensors u = leaves(values_of({5, 17}), at::kDouble);
  u[1].requires_grad_(false);
  u[2].requires_grad_(false);
  add_layer_norm(u[0], u[3], u[1], u[2]).output.square().sum().backward();
  EXPECT_TRUE(at::equal(u[0].grad(), u[3].grad()));
  EXPECT_FALSE(u[1].grad().defined());
}

TEST(NormTest, AutocastKeepsTheSumInFp32) {
  at::manual_seed(7);
  for (const at::ScalarType narrow : {at::kBFloat16, at::kHalf}) {
    Tensors values = values_of({9, 40});
    const Tensors t = leaves(values, at::kFloat);
    const at::Tensor added = t[3].detach().to(narrow).requires_grad_();
    AddedNorm both;
    {
      const Autocast autocast(narrow);
      both = add_layer_norm(t[0], added, t[1], t[2]);
    }
    EXPECT_EQ(both.sum.scalar_type(), at::kFloat);
    EXPECT_EQ(both.output.scalar_type(), narrow);
    (both.sum.sum() + both.output.to(at::kFloat).square().sum()).backward();
    EXPECT_EQ(t[0].grad().scalar_type(), at::kFloat);
    EXPECT_EQ(added.grad().scalar_type(), narrow);
    EXPECT_EQ(t[1].grad().scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(added.grad(), t[0].grad().to(narrow)));
    const Tensors known = leaves({t[0], t[1], t[2], added}, at::kDouble);
    const at::Tensor sum = known[0] + known[3];
    const at::Tensor output = layer({sum, known[1], known[2]});
    (sum.sum() + output.square().sum()).backward();
    expect_close(both.sum, sum, 2e-6, "sum");
    expect_close(both.output, output, rounding_of(narrow), "output");
    for (const std::size_t i : {0U, 1U, 2U})
      expect_close(t[i].grad(), known[i].grad(), 4 * rounding_of(narrow), "gradient");
  }
}

TEST(NormTest, ConvertsTypesThatDiffer) {
  at::manual_seed(8);
  const at::Tensor x = at::randn({4, 6}).to(at::kBFloat16).requires_grad_();
  const at::Tensor weight = at::randn({6}).requires_grad_();
  const at::Tensor output = nn::layer_norm(x, weight, {});
  EXPECT_EQ(output.scalar_type(), at::kFloat);
  output.square().sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
  const AddedNorm both = add_layer_norm(x.to(at::kFloat), x, weight, {});
  EXPECT_EQ(both.sum.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(both.sum, 2 * x.to(at::kFloat)));
}

TEST(NormTest, RefusesWhatDoesNotFit) {
  const at::Tensor x = at::randn({2, 3});
  const at::Tensor w = at::randn({3});
  EXPECT_THROW(nn::layer_norm({}, w, w), InvalidArgument);
  EXPECT_THROW(nn::layer_norm(x, at::randn({4}), w), InvalidArgument);
  EXPECT_THROW(nn::layer_norm(x, w, at::randn({1, 3})), InvalidArgument);
  EXPECT_THROW(nn::layer_norm(x.to(at::kLong), w, w), InvalidArgument);
  EXPECT_THROW(nn::layer_norm(at::randn({2, 0}), at::randn({0}), {}), InvalidArgument);
  EXPECT_THROW(nn::layer_norm(at::scalar_tensor(1), {}, {}), InvalidArgument);
  EXPECT_THROW(nn::layer_norm(x, w, w, -1), InvalidArgument);
  EXPECT_THROW(add_layer_norm(x, at::randn({3, 2}), w, w), InvalidArgument);
  EXPECT_THROW(nn::rms_norm(x, w, NAN), InvalidArgument);
  EXPECT_THROW(nn::rms_norm(at::empty({2, 3}, at::kMeta), {}), InvalidArgument);
}

TEST(NormTest, RefusesASecondDerivative) {
  const at::Tensor x = at::randn({2, 3}, at::kDouble).requires_grad_();
  const auto first = torch::autograd::grad({nn::layer_norm(x, {}, {}).square().sum()}, {x}, {}, {}, true);
  try {
    torch::autograd::grad({first[0].sum()}, {x});
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("no second derivatives"));
  }
}

TEST(NormTest, RefusesASecondDerivativeOfAnInputWithGaps) {
  const at::Tensor x = at::randn({2, 3}, at::kDouble).requires_grad_();
  for (const at::Tensor& output : {nn::layer_norm(x.t(), {}, {}), nn::rms_norm(x.t(), {})}) {
    const auto first = torch::autograd::grad({output.sum()}, {x}, {}, {}, true);
    ASSERT_TRUE(first[0].requires_grad());
    EXPECT_THROW(torch::autograd::grad({first[0].sum()}, {x}), InvalidArgument);
  }
}

}  // namespace
}  // namespace reigen::nn::norm_test
