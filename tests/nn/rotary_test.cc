#include "reigen/nn/rotary.h"

#include <cmath>
#include <memory>

#include "nn/fused.h"
#include "reigen/base/error.h"
#include "reigen/nn/activation_checkpoint.h"
#include "reigen/nn/unit.h"

namespace reigen::nn::rotary_test {
namespace {

using namespace fused_testing;

// As Llama's code computes it: x·cos + rotate_half(x)·sin.
at::Tensor formula(const at::Tensor& x, const RotaryTable& table, std::int64_t first = 0) {
  const std::int64_t half = x.size(3) / 2;
  const auto rows = [&](const at::Tensor& all) {
    const at::Tensor one = all.to(at::kDouble).narrow(0, first, x.size(1));
    return at::cat({one, one}, 1).unsqueeze(1);
  };
  const at::Tensor turned = at::cat({-x.narrow(3, half, half), x.narrow(3, 0, half)}, 3);
  return x * rows(table.cosines) + turned * rows(table.sines);
}

TEST(RotaryTest, TheTableHasTheAnglesOfThePositions) {
  const RotaryTable table = rotary_table(5, 6, 100, at::kDouble);
  EXPECT_EQ(table.cosines.sizes().vec(), (std::vector<std::int64_t>{5, 3}));
  for (std::int64_t p = 0; p < 5; ++p) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(p) * std::pow(100.0, -2.0 * static_cast<double>(i) / 6);
      EXPECT_NEAR(table.cosines[p][i].item<double>(), std::cos(angle), 1e-14);
      EXPECT_NEAR(table.sines[p][i].item<double>(), std::sin(angle), 1e-14);
    }
  }
  EXPECT_EQ(rotary_table(5, 6).sines.scalar_type(), at::kFloat);
}

TEST(RotaryTest, TurnsPairsOfHalves) {
  at::manual_seed(1);
  for (const std::int64_t width : {2, 6, 16, 34}) {
    for (const at::ScalarType type : kTypes) {
      const RotaryTable table = rotary_table(9, width, 1000, type == at::kDouble ? at::kDouble : at::kFloat);
      const Tensors values = {at::randn({2, 5, 3, width}, at::kDouble)};
      for (const std::int64_t first : {0, 4}) {
        compare([&](const Tensors& t) { return Tensors{rotary(t[0], table, first)}; },
                [&](const Tensors& t) { return Tensors{formula(t[0], table, first)}; }, values, type,
                name_of(type, first, width));
        compare([&](const Tensors& t) { return Tensors{rotary_(t[0].mul(1), table, first)}; },
                [&](const Tensors& t) { return Tensors{formula(t[0], table, first)}; }, values, type,
                name_of(type, first, width) + ", in place");
      }
    }
  }
}

TEST(RotaryTest, ReadsPartsOfAJointProjection) {
  at::manual_seed(2);
  const RotaryTable table = rotary_table(5, 8, 10000, at::kDouble);
  const auto key_of = [](const at::Tensor& qkv) { return qkv.view({2, 5, 3, 4, 8}).select(2, 1); };
  compare([&](const Tensors& t) { return Tensors{rotary(key_of(t[0]), table)}; },
          [&](const Tensors& t) { return Tensors{formula(key_of(t[0]), table)}; }, {at::randn({2, 5, 96}, at::kDouble)},
          at::kDouble, "key");
  compare([&](const Tensors& t) { return Tensors{rotary(t[0].transpose(1, 3), table).transpose(0, 1)}; },
          [&](const Tensors& t) { return Tensors{formula(t[0].transpose(1, 3), table).transpose(0, 1)}; },
          {at::randn({2, 8, 4, 5}, at::kDouble)}, at::kDouble, "with gaps");
}

TEST(RotaryTest, WritesInPlaceWhereItIsSafe) {
  const RotaryTable table = rotary_table(5, 8);
  const at::Tensor x = at::randn({2, 5, 12, 8});
  const at::Tensor known = rotary(x.narrow(2, 4, 4), table);
  const at::Tensor untouched = x.narrow(2, 0, 4).clone();
  const at::Tensor part = x.narrow(2, 4, 4);
  EXPECT_EQ(rotary_(part, table).const_data_ptr(), part.const_data_ptr());
  EXPECT_TRUE(at::equal(part, known));
  EXPECT_TRUE(at::equal(x.narrow(2, 0, 4), untouched));
  const at::Tensor leaf = at::randn({2, 5, 4, 8}).requires_grad_();
  EXPECT_THROW(rotary_(leaf, table), InvalidArgument);
  EXPECT_THROW(rotary_(leaf.mul(1).narrow(0, 0, 1), table), InvalidArgument);
  EXPECT_THROW(rotary_(at::randn({2, 5, 1, 8}).expand({2, 5, 4, 8}), table), InvalidArgument);
  const at::Tensor needed = leaf.exp();
  const at::Tensor turned = rotary_(needed, table);
  EXPECT_THROW(turned.sum().backward(), c10::Error);
}

// A unit whose product is kept, and turned in place after that.
TEST(RotaryTest, InPlaceChangesNothingThatActivationCheckpointingKeeps) {
  const RotaryTable table = rotary_table(5, 8, 10000, at::kDouble);
  const at::Tensor weight = at::randn({32, 32}, at::kDouble).requires_grad_();
  const auto module = std::make_shared<torch::nn::Module>();
  module->register_parameter("weight", weight);
  const Unit unit("turns", module, [&](const Carry& input) {
    const at::Tensor product = at::bmm(input[0].unsqueeze(0), weight.unsqueeze(0)).detach().view({2, 5, 4, 8});
    return Carry{rotary_(product, table) + at::mm(input[0], weight).view({2, 5, 4, 8})};
  });
  const at::Tensor x = at::randn({10, 32}, at::kDouble);
  const auto gradient = [&] {
    weight.mutable_grad() = at::Tensor();
    call(unit, x).square().sum().backward();
    return weight.grad().clone();
  };
  const at::Tensor known = gradient();
  const ActivationCheckpoint checkpoint({unit}, {.keep = products()});
  EXPECT_TRUE(at::equal(gradient(), known));
}

TEST(RotaryTest, RefusesWhatDoesNotFit) {
  const RotaryTable table = rotary_table(5, 8);
  EXPECT_THROW(rotary_table(0, 8), InvalidArgument);
  EXPECT_THROW(rotary_table(5, 7), InvalidArgument);
  EXPECT_THROW(rotary_table(5, 8, 0), InvalidArgument);
  EXPECT_THROW(rotary_table(5, 8, 10, at::kHalf), InvalidArgument);
  EXPECT_THROW(rotary({}, table), InvalidArgument);
  EXPECT_THROW(rotary(at::randn({2, 5, 8}), table), InvalidArgument);
  EXPECT_THROW(rotary(at::randn({2, 5, 1, 6}), table), InvalidArgument);
  EXPECT_THROW(rotary(at::randn({2, 6, 1, 8}), table), InvalidArgument);
  EXPECT_THROW(rotary(at::randn({2, 5, 1, 8}), table, 1), InvalidArgument);
  EXPECT_THROW(rotary(at::randn({2, 5, 1, 8}), table, -1), InvalidArgument);
  EXPECT_THROW(rotary(at::randn({2, 5, 1, 8}), {}), InvalidArgument);
  EXPECT_EQ(rotary(at::randn({0, 5, 1, 8}), table).numel(), 0);
}

}  // namespace
}  // namespace reigen::nn::rotary_test
