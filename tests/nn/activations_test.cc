#include "reigen/nn/activations.h"

#include "nn/fused.h"
#include "reigen/base/error.h"

namespace reigen::nn::activations_test {
namespace {

using namespace fused_testing;

struct Size {
  std::int64_t rows, columns;
};
const Size kSizes[] = {{1, 1}, {3, 3}, {5, 17}, {33, 8}, {70, 100}, {2, 1031}, {0, 7}};

TEST(GeluTest, IsThatOfLibTorchWithTheBias) {
  at::manual_seed(1);
  for (const Size& size : kSizes) {
    for (const at::ScalarType type : kTypes) {
      const Tensors values = {at::randn({size.rows, size.columns}, at::kDouble) * 3,
                              at::randn({size.columns}, at::kDouble)};
      const std::string name = name_of(type, size.rows, size.columns);
      compare([](const Tensors& t) { return Tensors{nn::gelu(t[0], t[1])}; },
              [](const Tensors& t) { return Tensors{at::gelu(t[0] + t[1])}; }, values, type, name, 1,
              least_of(size.columns));
      compare([](const Tensors& t) { return Tensors{nn::gelu(t[0])}; },
              [](const Tensors& t) { return Tensors{at::gelu(t[0])}; }, {values[0]}, type, name + ", no bias", 1,
              least_of(size.columns));
    }
  }
}

TEST(GeluTest, TakesABiasInFp32WithAnInputOf16Bits) {
  at::manual_seed(2);
  for (const at::ScalarType narrow : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = at::randn({40, 9}).to(narrow).requires_grad_();
    const at::Tensor bias = at::randn({9}).requires_grad_();
    const at::Tensor output = nn::gelu(x, bias);
    EXPECT_EQ(output.scalar_type(), narrow);
    output.to(at::kFloat).square().sum().backward();
    EXPECT_EQ(bias.grad().scalar_type(), at::kFloat);
    const Tensors known = leaves({x, bias}, at::kDouble);
    const at::Tensor expected = at::gelu(known[0] + known[1]);
    expected.square().sum().backward();
    expect_close(output, expected, rounding_of(narrow), "output");
    expect_close(x.grad(), known[0].grad(), rounding_of(narrow), "gradient");
    expect_close(bias.grad(), known[1].grad(), rounding_of(narrow), "gradient of the bias");
  }
  EXPECT_EQ(nn::gelu(at::randn({2, 3}), at::randn({3}).to(at::kHalf)).scalar_type(), at::kFloat);
  EXPECT_EQ(nn::gelu(at::randn({2, 3}), at::randn({3}, at::kDouble)).scalar_type(), at::kDouble);
  EXPECT_EQ(nn::gelu(at::randn({2, 3}).to(at::kHalf), at::randn({3}, at::kDouble)).scalar_type(), at::kDouble);
  EXPECT_EQ(nn::gelu(at::randn({2, 3}).to(at::kHalf), at::randn({3}).to(at::kBFloat16)).scalar_type(), at::kFloat);
}

TEST(GeluTest, ReadsTensorsWithGaps) {
  at::manual_seed(3);
  const Tensors values = {at::randn({6, 5, 4}, at::kDouble), at::randn({12}, at::kDouble)};
  const auto parted = [](const Tensors& t) { return Tensors{t[0].transpose(0, 2), t[1].slice(0, 0, 12, 2)}; };
  compare([&](const Tensors& t) { return Tensors{nn::gelu(parted(t)[0], parted(t)[1]).transpose(0, 1)}; },
          [&](const Tensors& t) { return Tensors{at::gelu(parted(t)[0] + parted(t)[1]).transpose(0, 1)}; }, values,
          at::kDouble, "with gaps");
}

TEST(GeluTest, RefusesWhatDoesNotFit) {
  EXPECT_THROW(nn::gelu({}), InvalidArgument);
  EXPECT_THROW(nn::gelu(at::randn({2, 3}), at::randn({2})), InvalidArgument);
  EXPECT_THROW(nn::gelu(at::zeros({2, 3}, at::kLong)), InvalidArgument);
  const at::Tensor x = at::randn({2, 3}).requires_grad_();
  const auto first = torch::autograd::grad({nn::gelu(x).sum()}, {x}, {}, {}, true);
  EXPECT_THROW(torch::autograd::grad({first[0].sum()}, {x}), InvalidArgument);
}

TEST(GeluTest, RefusesASecondDerivativeOfAnInputWithGaps) {
  const at::Tensor x = at::randn({2, 3}).requires_grad_();
  const auto first = torch::autograd::grad({nn::gelu(x.t()).sum()}, {x}, {}, {}, true);
  ASSERT_TRUE(first[0].requires_grad());
  EXPECT_THROW(torch::autograd::grad({first[0].sum()}, {x}), InvalidArgument);
}

at::Tensor formula(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate) * up; }

TEST(SwigluTest, IsItsFormula) {
  at::manual_seed(4);
  for (const Size& size : kSizes) {
    for (const at::ScalarType type : kTypes) {
      const Tensors values = {at::randn({size.rows, size.columns}, at::kDouble) * 3,
                              at::randn({size.rows, size.columns}, at::kDouble)};
      compare([](const Tensors& t) { return Tensors{swiglu(t[0], t[1])}; },
              [](const Tensors& t) { return Tensors{formula(t[0], t[1])}; }, values, type,
              name_of(type, size.rows, size.columns));
    }
  }
}

TEST(SwigluTest, ReadsPartsOfOneTensor) {
  at::manual_seed(5);
  const auto halves = [](const at::Tensor& both) { return both.chunk(2, -1); };
  for (const std::int64_t columns : {1, 3, 16}) {
    compare([&](const Tensors& t) { return Tensors{swiglu(halves(t[0])[0], halves(t[0])[1])}; },
            [&](const Tensors& t) { return Tensors{formula(halves(t[0])[0], halves(t[0])[1])}; },
            {at::randn({4, 5, 2 * columns}, at::kDouble)}, at::kDouble, "halves");
  }
  compare([&](const Tensors& t) { return Tensors{swiglu(t[0].transpose(0, 1), t[1])}; },
          [&](const Tensors& t) { return Tensors{formula(t[0].transpose(0, 1), t[1])}; },
          {at::randn({4, 5, 3}, at::kDouble), at::randn({5, 4, 3}, at::kDouble)}, at::kDouble, "transposed");
  compare(
      [&](const Tensors& t) {
        return Tensors{swiglu(t[0].expand({5, 3}), t[1])};
      },
      [&](const Tensors& t) {
        return Tensors{formula(t[0].expand({5, 3}), t[1])};
      },
      {at::randn({3}, at::kDouble), at::randn({5, 3}, at::kDouble)}, at::kDouble, "expanded");
}

TEST(SwigluTest, HasItsLimits) {
  const at::Tensor gate = at::tensor({-1e4, 1e4, -200.0, 200.0}).to(at::kFloat);
  EXPECT_TRUE(at::allclose(swiglu(gate, at::ones({4})), at::silu(gate)));
}

TEST(SwigluTest, RefusesWhatDoesNotFit) {
  EXPECT_THROW(swiglu(at::randn({2, 3}), {}), InvalidArgument);
  EXPECT_THROW(swiglu(at::randn({2, 3}), at::randn({3, 2})), InvalidArgument);
  EXPECT_THROW(swiglu(at::zeros({2}, at::kInt), at::zeros({2}, at::kInt)), InvalidArgument);
}

}  // namespace
}  // namespace reigen::nn::activations_test
