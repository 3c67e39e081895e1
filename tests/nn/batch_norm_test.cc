#include "reigen/nn/batch_norm.h"

#include <gmock/gmock.h>

#include "device/model_calls.h"
#include "nn/fused.h"
#include "reigen/base/error.h"

namespace reigen::nn::batch_norm_test {
namespace {

using namespace fused_testing;
using ::testing::HasSubstr;

// The shapes of inputs. 7 channels leave packs incomplete; 70 rows are more than two blocks of a sum.
const std::vector<std::vector<std::int64_t>> kShapes = {{2, 1},       {5, 3},       {70, 7},       {40, 64},
                                                        {3, 8, 5, 4}, {2, 7, 1, 3}, {4, 16, 6, 6}, {33, 24, 1, 1}};

struct Case {
  bool residual;
  bool relu;
  bool training;
  bool affine;
  std::string text() const {
    return std::string(residual ? ", residual" : "") + (relu ? ", relu" : "") + (training ? ", training" : "") +
           (affine ? ", affine" : "");
  }
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (int bits = 0; bits < 16; ++bits) {
    all.push_back({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0});
  }
  return all;
}

// Arguments: the input, weight and bias, the residual.
Tensors values(const std::vector<std::int64_t>& shape, const Case& one) {
  const std::int64_t channels = shape[1];
  Tensors result = {at::randn(shape, at::kDouble) * 2 + 3};
  if (one.affine) result.insert(result.end(), {at::randn({channels}, at::kDouble), at::randn({channels}, at::kDouble)});
  if (one.residual) result.push_back(at::randn(shape, at::kDouble));
  return result;
}

// The running statistics before, in every type.
Tensors running(std::int64_t channels, at::ScalarType type) {
  const at::Tensor place = at::arange(channels, at::kDouble);
  return {(place * 0.25 - 1).to(type), (place * 0.5 + 0.75).to(type)};
}

// The function of Reigen, or the operations of LibTorch if `known`. `after` gets the running statistics.
std::function<Tensors(const Tensors&)> function(const Case& one, bool known, Tensors& after) {
  return [one, known, &after](const Tensors& t) {
    const at::Tensor residual = one.residual ? t.back() : at::Tensor();
    const at::Tensor weight = one.affine ? t[1] : at::Tensor();
    const at::Tensor bias = one.affine ? t[2] : at::Tensor();
    const Tensors statistics = running(t[0].size(1), t[0].scalar_type());
    after = statistics;
    if (!known) {
      return Tensors{
          batch_norm(t[0], {weight, bias, statistics[0], statistics[1]},
                     {.residual = residual, .relu = one.relu, .training = one.training, .momentum = 0.3, .eps = 1e-3})};
    }
    at::Tensor y = at::batch_norm(t[0], weight, bias, statistics[0], statistics[1], one.training, 0.3, 1e-3, false);
    if (residual.defined()) y = y + residual;
    return Tensors{one.relu ? at::relu(y) : y};
  };
}

TEST(BatchNormTest, IsThatOfLibTorchWithAdditionAndRelu) {
  at::manual_seed(1);
  Tensors found;
  Tensors expected;
  for (const auto& shape : kShapes) {
    for (const Case& one : cases()) {
      const Tensors arguments = values(shape, one);
      const std::string name = name_of(at::kDouble, shape[0], shape[1]) + one.text();
      // A gradient may be a small difference of numbers of about 1.
      compare(function(one, false, found), function(one, true, expected), arguments, at::kDouble, name, 10, 1);
      for (const std::size_t i : {0U, 1U}) expect_close(found[i], expected[i], 1e-12, name + ", running statistics");
    }
  }
}

// Where an output is almost 0, the rounding of a lower type decides about the gradient. So ReLU has its own test.
TEST(BatchNormTest, TakesAllTypes) {
  at::manual_seed(2);
  Tensors found;
  Tensors expected;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Case& one : cases()) {
      if (one.relu) continue;
      const Tensors arguments = values({8, 16, 3, 3}, one);
      compare(function(one, false, found), function(one, true, expected), arguments, type,
              name_of(type, 72, 16) + one.text(), 4, 1);
    }
  }
}

TEST(BatchNormTest, ReluStopsTheGradientWhereTheOutputIsNotPositive) {
  at::manual_seed(3);
  for (const at::ScalarType type : kTypes) {
    for (const bool has_residual : {false, true}) {
      const at::Tensor x = at::randn({64, 8}).to(type).requires_grad_();
      const at::Tensor residual = at::randn({64, 8}).to(type).requires_grad_();
      const at::Tensor bias = at::zeros({8}, type).requires_grad_();
      const at::Tensor y =
          batch_norm(x, {.bias = bias}, {.residual = has_residual ? residual : at::Tensor(), .relu = true});
      EXPECT_TRUE(y.ge(0).all().item<bool>());
      const at::Tensor whole = batch_norm(x, {}, {.residual = has_residual ? residual : at::Tensor()});
      EXPECT_TRUE(at::equal(y, at::relu(whole))) << type;
      y.sum().backward();
      // The gradient of the bias counts the outputs that are positive; every type has these numbers exactly.
      EXPECT_TRUE(at::equal(bias.grad(), y.gt(0).sum(0).to(type))) << type;
      if (!has_residual) continue;
      EXPECT_TRUE(at::equal(residual.grad(), y.gt(0).to(type))) << type;
    }
  }
}

TEST(BatchNormTest, TakesParametersInFp32WithAnInputOf16Bits) {
  at::manual_seed(4);
  for (const at::ScalarType narrow : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = (at::randn({6, 5, 4, 4}) + 2).to(narrow).requires_grad_();
    const at::Tensor weight = at::randn({5}).requires_grad_();
    const at::Tensor bias = at::randn({5}).requires_grad_();
    const Tensors statistics = running(5, at::kFloat);
    const at::Tensor y = batch_norm(x, {weight, bias, statistics[0], statistics[1]});
    EXPECT_EQ(y.scalar_type(), narrow);
    y.to(at::kDouble).square().sum().backward();
    EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
    const Tensors known = leaves({x, weight, bias}, at::kDouble);
    const Tensors expected = running(5, at::kDouble);
    at::batch_norm(known[0], known[1], known[2], expected[0], expected[1], true, 0.1, 1e-5, false)
        .square()
        .sum()
        .backward();
    // Backward gets the rounded output.
    expect_close(weight.grad(), known[1].grad(), rounding_of(narrow), "weight");
    expect_close(bias.grad(), known[2].grad(), rounding_of(narrow), "bias");
    expect_close(statistics[0], expected[0], 2e-6, "running mean");
    expect_close(statistics[1], expected[1], 2e-6, "running variance");
  }
}

// Many rows have longer blocks, the last of which is not whole, and more blocks than a slice of the second step.
TEST(BatchNormTest, ManyRowsAreAddedUpInLongerBlocks) {
  at::manual_seed(8);
  const std::int64_t rows = 3 * device::kRowsOfSum * device::kMostBatchSums + 45;
  ASSERT_GT(device::batch_rows_of_sum(rows), device::kRowsOfSum);
  ASSERT_LE(device::batch_sums_of(rows), device::kMostBatchSums);
  Tensors found;
  Tensors expected;
  const Case one{true, true, true, true};
  compare(function(one, false, found), function(one, true, expected), values({rows, 2}, one), at::kDouble, "many rows",
          10, 1);
  for (const std::size_t i : {0U, 1U}) expect_close(found[i], expected[i], 1e-12, "running statistics");
  const at::Tensor single = at::randn({rows, 2}) * 0.1 + 10;
  const Tensors statistics = running(2, at::kFloat);
  batch_norm(single, {{}, {}, statistics[0], statistics[1]}, {.momentum = 1});
  expect_close(statistics[0], single.to(at::kDouble).mean(0), 2e-6, "mean in fp32");
  expect_close(statistics[1], single.to(at::kDouble).var(0), 2e-4, "variance in fp32");
}

// In fp32 the plain sum of squares would lose all digits of this variance.
TEST(BatchNormTest, AVarianceFarFromZeroIsExact) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({5000, 3}, at::kDouble) * 0.01 + 100;
  const at::Tensor single = x.to(at::kFloat);
  const Tensors statistics = running(3, at::kFloat);
  batch_norm(single, {{}, {}, statistics[0], statistics[1]}, {.momentum = 1});
  const at::Tensor variance = single.to(at::kDouble).var(0);
  EXPECT_LE(((statistics[1].to(at::kDouble) - variance) / variance).abs().max().item<double>(), 1e-4);
}

TEST(BatchNormTest, TheOutputIsChannelsLastAndInputsOfAnyFormatGiveTheSameBits) {
  at::manual_seed(6);
  const at::Tensor x = at::randn({3, 4, 5, 6});
  const at::Tensor y = batch_norm(x, {});
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::equal(y, batch_norm(x.contiguous(at::MemoryFormat::ChannelsLast), {})));
  EXPECT_TRUE(at::equal(y, batch_norm(at::cat({x, x}, 1).narrow(1, 4, 4), {})));
}

TEST(BatchNormTest, AnEmptyBatchHasGradientsOfZero) {
  const at::Tensor x = at::zeros({0, 4}).requires_grad_();
  const at::Tensor weight = at::ones({4}).requires_grad_();
  const at::Tensor residual = at::zeros({0, 4}).requires_grad_();
  const at::Tensor y = batch_norm(x, {weight, {}, at::zeros({4}), at::ones({4})},
                                  {.residual = residual, .relu = true, .training = false});
  EXPECT_EQ(y.numel(), 0);
  y.sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::zeros({4})));
  EXPECT_EQ(x.grad().numel(), 0);
}

TEST(BatchNormTest, GradientsAreMadeForWhatNeedsThem) {
  at::manual_seed(9);
  const at::Tensor x = at::randn({6, 3});
  const at::Tensor weight = at::ones({3}).requires_grad_();
  const at::Tensor frozen = at::zeros({3});
  const at::Tensor y = batch_norm(x, {.weight = weight, .bias = frozen}, {.residual = x, .relu = true});
  y.sum().backward({}, /*keep_graph=*/true);
  const at::Tensor first = weight.grad().clone();
  EXPECT_FALSE(frozen.grad().defined());
  EXPECT_FALSE(x.grad().defined());
  y.sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), first * 2));
}

TEST(BatchNormTest, TheCallersGradientIsNotAddedTo) {
  at::manual_seed(11);
  const at::Tensor x = at::randn({4, 3});
  const at::Tensor residual = at::zeros({4, 3}).requires_grad_();
  const at::Tensor given = at::ones({4, 3});
  for (int i = 0; i < 3; ++i) batch_norm(x, {}, {.residual = residual}).backward(given);
  EXPECT_TRUE(at::equal(given, at::ones({4, 3})));
  EXPECT_TRUE(at::equal(residual.grad(), at::full({4, 3}, 3.0)));
}

// The statistics of an evaluation are those at its forward.
TEST(BatchNormTest, StatisticsThatChangeBeforeBackwardDoNotCount) {
  at::manual_seed(10);
  const Tensors statistics = running(3, at::kFloat);
  const BatchNormTensors tensors{.running_mean = statistics[0], .running_var = statistics[1]};
  const auto gradients = [&](bool changes) {
    const at::Tensor x = at::ones({6, 3}).requires_grad_();
    const at::Tensor weight = at::ones({3}).requires_grad_();
    BatchNormTensors with = tensors;
    with.weight = weight;
    const at::Tensor y = batch_norm(x, with, {.training = false});
    if (changes) batch_norm(at::randn({6, 3}), tensors, {});
    y.sum().backward();
    return weight.grad();
  };
  const at::Tensor expected = gradients(false);
  EXPECT_TRUE(at::equal(gradients(true), expected));
}

TEST(BatchNormTest, TheNumberOfThreadsChangesNoBit) {
  at::manual_seed(7);
  const Tensors arguments = values({40, 32, 9, 9}, {true, true, true, true});
  Tensors after;
  const int before = at::get_num_threads();
  Tensors first;
  for (const int threads : {1, 2, 5}) {
    at::set_num_threads(threads);
    const Tensors all = with_gradients(function({true, true, true, true}, false, after), leaves(arguments, at::kFloat));
    if (first.empty()) first = all;
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(at::equal(all[i], first[i])) << threads << ", " << i;
  }
  at::set_num_threads(before);
}

std::string error_of(const at::Tensor& x, const BatchNormTensors& tensors, const BatchNormOptions& options = {}) {
  try {
    batch_norm(x, tensors, options);
    return "no error";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

TEST(BatchNormTest, RefusesWhatDoesNotFit) {
  const at::Tensor x = at::randn({4, 3});
  EXPECT_THAT(error_of({}, {}), HasSubstr("undefined"));
  EXPECT_THAT(error_of(at::randn({4, 3, 2}), {}), HasSubstr("[B, C] or [B, C, H, W]"));
  EXPECT_THAT(error_of(x, {.weight = at::ones({4})}), HasSubstr("weight does not fit"));
  EXPECT_THAT(error_of(x, {.running_mean = at::zeros({3})}), HasSubstr("running statistics are missing"));
  EXPECT_THAT(error_of(x, {}, {.training = false}), HasSubstr("running statistics are missing"));
  EXPECT_THAT(error_of(x, {}, {.residual = at::randn({4, 2})}), HasSubstr("residual does not fit"));
  EXPECT_THAT(error_of(x, {}, {.residual = at::randn({4, 3}, at::kDouble)}), HasSubstr("residual does not fit"));
  EXPECT_THAT(error_of(x, {.weight = at::ones({3}, at::kDouble)}), HasSubstr("types do not fit"));
  EXPECT_THAT(error_of(x.to(at::kHalf), {at::ones({3}), at::zeros({3}, at::kHalf)}), HasSubstr("types do not fit"));
  EXPECT_THAT(error_of(x.to(at::kHalf), {.weight = at::ones({3}, at::kBFloat16)}), HasSubstr("types do not fit"));
  EXPECT_THAT(error_of(at::randn({1, 3}), {}), HasSubstr("one value has no variance"));
  EXPECT_THAT(error_of(x, {}, {.eps = -1}), HasSubstr("eps or momentum"));
  const at::Tensor leaf = at::randn({4, 3}).requires_grad_();
  const auto first = torch::autograd::grad({batch_norm(leaf, {}).sum()}, {leaf}, {}, {}, true);
  EXPECT_THROW(torch::autograd::grad({first[0].sum()}, {leaf}), InvalidArgument);
  // Without ReLU the gradient of the residual has the values of the caller's gradient, which keeps its own history.
  const at::Tensor residual = at::randn({4, 3}).requires_grad_();
  const at::Tensor given = at::ones({4, 3}).requires_grad_();
  const auto second =
      torch::autograd::grad({batch_norm(leaf, {}, {.residual = residual})}, {leaf, residual}, {given}, {}, true);
  EXPECT_TRUE(given.is_leaf());
  EXPECT_THROW(torch::autograd::grad({second[0].sum()}, {given}), InvalidArgument);
}

}  // namespace
}  // namespace reigen::nn::batch_norm_test
