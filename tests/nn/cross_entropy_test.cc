#include "reigen/nn/cross_entropy.h"

#include <gmock/gmock.h>

#include <limits>

#include "nn/fused.h"
#include "reigen/base/error.h"

namespace reigen::nn::cross_entropy_test {
namespace {

using namespace fused_testing;

struct Size {
  std::int64_t rows, columns;
};
const Size kSizes[] = {{1, 1}, {3, 3}, {5, 17}, {40, 1000}, {2, 1031}, {3, 1032}};

at::Tensor targets_of(const Size& size) { return at::randint(size.columns, {size.rows}, at::kLong); }

// A factor is not 1, so that backward must multiply.
TEST(CrossEntropyTest, IsThatOfLibTorch) {
  at::manual_seed(1);
  for (const Size& size : kSizes) {
    for (const at::ScalarType type : kTypes) {
      const at::Tensor target = targets_of(size);
      if (size.rows > 2) target[1] = -100;
      const Tensors values = {at::randn({size.rows, size.columns}, at::kDouble) * 3};
      for (const double factor : {1.0, 0.375}) {
        for (const bool keeps : {false, true}) {
          compare(
              [&](const Tensors& t) {
                const at::Tensor logits = t[0].mul(1);  // the result of an operation, not a leaf
                const at::Tensor before = logits.detach().clone();
                const at::Tensor loss = cross_entropy(logits, target, {.keep_logits = keeps});
                EXPECT_EQ(loss.scalar_type(), type == at::kDouble ? at::kDouble : at::kFloat);
                EXPECT_EQ(at::equal(logits.detach(), before), keeps);
                return Tensors{loss * factor};
              },
              [&](const Tensors& t) { return Tensors{at::cross_entropy_loss(t[0], target) * factor}; }, values, type,
              name_of(type, size.rows, size.columns));
        }
      }
    }
  }
}

// The factor of a gradient scaler comes in backward. A gradient divided by 2048 rows has few bits in fp16 before.
TEST(CrossEntropyTest, GradientsInFp16AreNotRoundedBeforeTheFactorOfTheLoss) {
  at::manual_seed(9);
  const Size size{2048, 1000};
  const at::Tensor target = targets_of(size);
  target.slice(0, 0, 24).fill_(-100);
  const at::Tensor x = (at::randn({size.rows, size.columns}) * 0.5).to(at::kHalf).requires_grad_();
  const at::Tensor known = x.detach().to(at::kDouble).requires_grad_();
  constexpr double kFactor = 65536;
  (cross_entropy(x.mul(1), target) * kFactor).backward();
  (at::cross_entropy_loss(known, target) * kFactor).backward();
  const at::Tensor apart = (x.grad().to(at::kDouble) - known.grad()).abs();
  EXPECT_TRUE(apart.le(known.grad().abs() * rounding_of(at::kHalf)).all().item<bool>());
}

TEST(CrossEntropyTest, LeavesParametersAndTensorsWithGapsAsTheyAre) {
  at::manual_seed(2);
  const at::Tensor target = at::randint(7, {5}, at::kLong);
  const auto is_kept = [&](const at::Tensor& leaf, const std::function<at::Tensor(const at::Tensor&)>& part) {
    const at::Tensor before = leaf.detach().clone();
    cross_entropy(part(leaf), target).backward();
    EXPECT_TRUE(at::equal(leaf.detach(), before));
    const at::Tensor known = leaf.detach().clone().requires_grad_();
    at::cross_entropy_loss(part(known), target).backward();
    expect_close(leaf.grad(), known.grad(), 1e-12, "gradient");
  };
  const auto leaf_of = [](std::vector<std::int64_t> shape) { return at::randn(shape, at::kDouble).requires_grad_(); };
  is_kept(leaf_of({5, 7}), [](const at::Tensor& t) { return t; });
  is_kept(leaf_of({1, 5, 7}), [](const at::Tensor& t) { return t.flatten(0, 1); });
  is_kept(leaf_of({7, 5}), [](const at::Tensor& t) { return t.mul(2).t(); });
  is_kept(leaf_of({5, 9}), [](const at::Tensor& t) { return t.mul(2).narrow(1, 1, 7); });
  const at::Tensor logits = at::randn({5, 7});
  const at::Tensor before = logits.clone();
  EXPECT_FALSE(cross_entropy(logits, target).requires_grad());
  EXPECT_TRUE(at::equal(logits, before));
}

// Autograd allows no write to one of several views from one operation.
TEST(CrossEntropyTest, LeavesPartsOfATensorAsTheyAre) {
  at::manual_seed(11);
  const at::Tensor target = at::randint(6, {2}, at::kLong);
  const at::Tensor x = at::randn({4, 6}, at::kDouble).requires_grad_();
  const at::Tensor all = x.mul(1);
  const std::vector<at::Tensor> parts = all.chunk(2);
  const at::Tensor loss = cross_entropy(parts[0], target) + 2 * cross_entropy(parts[1], target);
  EXPECT_TRUE(at::equal(all, x));
  loss.backward();
  const at::Tensor known = x.detach().clone().requires_grad_();
  (at::cross_entropy_loss(known.narrow(0, 0, 2), target) + 2 * at::cross_entropy_loss(known.narrow(0, 2, 2), target))
      .backward();
  expect_close(x.grad(), known.grad(), 1e-12, "gradient");
}

TEST(CrossEntropyTest, WritesOverTheMemoryOfTheLogits) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({4, 6}, at::kDouble).requires_grad_();
  const at::Tensor logits = x.mul(1).view({2, 2, 6});
  const void* const memory = logits.const_data_ptr();
  at::Tensor seen;
  logits.register_hook([&](const at::Tensor& gradient) { seen = gradient; });
  const at::Tensor loss = cross_entropy(logits.flatten(0, 1), at::randint(6, {4}, at::kLong));
  EXPECT_EQ(logits.const_data_ptr(), memory);
  loss.backward();
  EXPECT_EQ(seen.const_data_ptr(), memory);
}

TEST(CrossEntropyTest, TellsAutogradThatTheLogitsAreLost) {
  const at::Tensor x = at::randn({4, 6}).requires_grad_();
  const at::Tensor logits = x.exp();  // its backward reads its result
  const at::Tensor loss = cross_entropy(logits, at::zeros({4}, at::kLong));
  EXPECT_THROW(loss.backward(), c10::Error);
}

void expect_changed_logits(const at::Tensor& loss) {
  try {
    loss.backward();
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("modified by an inplace operation"));
  }
}

TEST(CrossEntropyTest, AWriteToTheLogitsAfterTheLossIsAnError) {
  const at::Tensor target = at::zeros({4}, at::kLong);
  const at::Tensor x = at::randn({4, 6}).requires_grad_();
  for (const bool keeps : {false, true}) {
    const at::Tensor logits = x.mul(1);
    const at::Tensor loss = cross_entropy(logits, target, {.keep_logits = keeps});
    logits.detach().zero_();
    if (keeps) {
      loss.backward();
    } else {
      expect_changed_logits(loss);
    }
  }
}

TEST(CrossEntropyTest, TwoLossesOverOneTensorNeedItsValues) {
  at::manual_seed(10);
  const at::Tensor target = at::randint(6, {4}, at::kLong);
  const at::Tensor other = at::randint(6, {4}, at::kLong);
  const at::Tensor x = at::randn({8, 6}, at::kDouble).requires_grad_();
  const auto both = [&](const at::Tensor& first, const at::Tensor& second, bool keeps) {
    return cross_entropy(first, target, {.keep_logits = keeps}) + cross_entropy(second, other, {.keep_logits = keeps});
  };
  const at::Tensor known = x.detach().clone().requires_grad_();
  const at::Tensor part = known.narrow(0, 0, 4);
  (at::cross_entropy_loss(part, target) + at::cross_entropy_loss(part, other) + at::cross_entropy_loss(part, target) +
   at::cross_entropy_loss(known.narrow(0, 4, 4), other))
      .backward();
  for (const bool keeps : {false, true}) {
    const at::Tensor logits = x.narrow(0, 0, 4).mul(1);
    const at::Tensor same = both(logits, logits, keeps);
    const at::Tensor all = x.mul(1);
    const at::Tensor parts = both(all.narrow(0, 0, 4), all.narrow(0, 4, 4), keeps);
    if (keeps) {
      (same + parts).backward();
      expect_close(x.grad(), known.grad(), 1e-12, "gradient");
    } else {
      expect_changed_logits(same);
      expect_changed_logits(parts);
    }
  }
}

TEST(CrossEntropyTest, AllRowsMayBeIgnored) {
  for (const at::ScalarType type : kTypes) {
    const at::Tensor x = at::randn({3, 5}).to(type).requires_grad_();
    const at::Tensor loss = cross_entropy(x.mul(1), at::full({3}, 7, at::kLong), {.ignore_index = 7});
    EXPECT_TRUE(loss.isnan().item<bool>());
    loss.backward();
    EXPECT_TRUE(x.grad().eq(0).all().item<bool>());
  }
  const at::Tensor none = at::randn({0, 5}).requires_grad_();
  const at::Tensor loss = cross_entropy(none.mul(1), at::zeros({0}, at::kLong));
  EXPECT_TRUE(loss.isnan().item<bool>());
  loss.backward();
  EXPECT_EQ(none.grad().numel(), 0);
}

TEST(CrossEntropyTest, TakesLogitsOfInfinity) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const at::Tensor values = at::tensor({-kInfinity, 1.0, -kInfinity, 2.0, 1e300, -1e300}, at::kDouble).view({2, 3});
  const at::Tensor target = at::tensor({std::int64_t{1}, std::int64_t{0}}, at::kLong);
  compare([&](const Tensors& t) { return Tensors{cross_entropy(t[0], target)}; },
          [&](const Tensors& t) { return Tensors{at::cross_entropy_loss(t[0], target)}; }, {values}, at::kDouble,
          "infinity");
  const at::Tensor bad = at::tensor({1.0, NAN, 2.0, 0.0, 1.0, 2.0}, at::kDouble).view({2, 3});
  EXPECT_TRUE(cross_entropy(bad, target).isnan().item<bool>());
  EXPECT_TRUE(cross_entropy(at::full({2, 3}, -kInfinity), target).isnan().item<bool>());
}

TEST(CrossEntropyTest, RefusesASecondBackward) {
  const at::Tensor x = at::randn({4, 6}).requires_grad_();
  const at::Tensor loss = cross_entropy(x.mul(1), at::zeros({4}, at::kLong));
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), InvalidArgument);
  const at::Tensor other = cross_entropy(x.mul(1), at::zeros({4}, at::kLong));
  other.backward();
  EXPECT_THROW(other.backward(), InvalidArgument);
}

TEST(CrossEntropyTest, RefusesASecondDerivative) {
  const at::Tensor x = at::randn({4, 6}).requires_grad_();
  const at::Tensor scale = at::ones({}).requires_grad_();
  const at::Tensor loss = cross_entropy(x.mul(1), at::zeros({4}, at::kLong));
  const auto first = torch::autograd::grad({loss * scale}, {x}, {}, {}, true);
  EXPECT_THROW(torch::autograd::grad({first[0].sum()}, {scale}), InvalidArgument);
}

// The gradient depends on the logits, also if only they depend on what is differentiated.
TEST(CrossEntropyTest, RefusesASecondDerivativeThroughTheLogits) {
  for (const bool keeps : {false, true}) {
    const at::Tensor h = at::randn({4, 3}).mm(at::randn({3, 3}).requires_grad_());
    const at::Tensor weight = at::randn({3, 6}).requires_grad_();
    const at::Tensor loss = cross_entropy(h.mm(weight), at::zeros({4}, at::kLong), {.keep_logits = keeps});
    const auto first = torch::autograd::grad({loss}, {weight}, {}, {}, true);
    const at::Tensor along = (first[0] * at::randn({3, 6})).sum();
    EXPECT_THROW(torch::autograd::grad({along}, {weight}), InvalidArgument);
  }
}

TEST(CrossEntropyTest, RefusesWhatDoesNotFit) {
  const at::Tensor logits = at::randn({2, 3});
  const at::Tensor target = at::zeros({2}, at::kLong);
  EXPECT_THROW(cross_entropy({}, target), InvalidArgument);
  EXPECT_THROW(cross_entropy(logits, {}), InvalidArgument);
  EXPECT_THROW(cross_entropy(at::randn({2, 3, 4}), target), InvalidArgument);
  EXPECT_THROW(cross_entropy(logits, at::zeros({3}, at::kLong)), InvalidArgument);
  EXPECT_THROW(cross_entropy(logits, target.to(at::kInt)), InvalidArgument);
  EXPECT_THROW(cross_entropy(logits.to(at::kLong), target), InvalidArgument);
  EXPECT_THROW(cross_entropy(at::randn({2, 0}), target), InvalidArgument);
  EXPECT_THROW(cross_entropy(logits, at::full({2}, 3, at::kLong)), InvalidArgument);
  try {
    cross_entropy(logits, at::tensor({std::int64_t{0}, std::int64_t{-1}}, at::kLong));
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("got: -1 in row 1   expected: 0 to 2, or -100"));
  }
}

}  // namespace
}  // namespace reigen::nn::cross_entropy_test
