#include "reigen/nn/causal_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "nn/kept_outputs.h"
#include "reigen/base/error.h"
#include "reigen/nn/activation_checkpoint.h"

namespace reigen::nn::causal_attention_test {
namespace {

// The formula in the header.
at::Tensor reference(const at::Tensor& qkv, std::int64_t heads) {
  const std::int64_t length = qkv.size(1);
  const std::int64_t dim = qkv.size(2) / 3;
  const std::int64_t width = dim / heads;
  const at::Tensor later = at::ones({length, length}, at::kBool).triu(1);
  std::vector<at::Tensor> results;
  for (std::int64_t head = 0; head < heads; ++head) {
    const auto part = [&](std::int64_t which) { return qkv.narrow(2, which * dim + head * width, width); };
    const at::Tensor scores = at::matmul(part(0), part(1).transpose(1, 2)) / std::sqrt(static_cast<double>(width));
    const at::Tensor seen = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
    results.push_back(at::matmul(at::softmax(seen, -1), part(2)));
  }
  return at::cat(results, 2);
}

double difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

struct Shape {
  std::int64_t batch, length, heads, width;
};

TEST(CausalAttentionTest, ValuesAndGradientsAreThoseOfTheFormula) {
  at::manual_seed(1);
  // Lengths around the size of a block of keys. With many positions the heads run one at a time, otherwise together.
  for (const Shape& s : std::vector<Shape>{{1, 1, 1, 1},
                                           {2, 3, 2, 4},
                                           {3, 63, 2, 5},
                                           {1, 64, 3, 8},
                                           {2, 65, 1, 16},
                                           {2, 200, 6, 64},
                                           {1, 1100, 3, 4}}) {
    SCOPED_TRACE(::testing::Message() << s.batch << " x " << s.length << ", " << s.heads << " heads of " << s.width);
    const at::Tensor qkv = at::randn({s.batch, s.length, 3 * s.heads * s.width}, at::kDouble).requires_grad_();
    const at::Tensor y = causal_attention(qkv, s.heads);
    const at::Tensor expected = reference(qkv, s.heads);
    ASSERT_EQ(y.sizes(), expected.sizes());
    EXPECT_LT(difference(y, expected), 1e-12);
    const at::Tensor along = at::randn(y.sizes(), at::kDouble);
    const auto found = torch::autograd::grad({y}, {qkv}, {along});
    const auto known = torch::autograd::grad({expected}, {qkv}, {along});
    EXPECT_LT(difference(found[0], known[0]), 1e-12);
    // The gradient of a sum has another memory layout.
    const auto of_sum = torch::autograd::grad({causal_attention(qkv, s.heads).sum()}, {qkv});
    const auto known_sum = torch::autograd::grad({reference(qkv, s.heads).sum()}, {qkv});
    EXPECT_LT(difference(of_sum[0], known_sum[0]), 1e-11);
  }
}

TEST(CausalAttentionTest, SingleAndSixteenBitsComeNear) {
  at::manual_seed(2);
  const at::Tensor exact = at::randn({2, 130, 3 * 4 * 16}, at::kDouble).requires_grad_();
  const at::Tensor along = at::randn({2, 130, 4 * 16}, at::kDouble);
  const at::Tensor expected = reference(exact, 4);
  const auto known = torch::autograd::grad({expected}, {exact}, {along});
  for (const auto& [type, tolerance] : {std::pair{at::kFloat, 1e-5}, {at::kBFloat16, 0.1}}) {
    const at::Tensor qkv = exact.detach().to(type).requires_grad_();
    const at::Tensor y = causal_attention(qkv, 4);
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_LT(difference(y.to(at::kDouble), expected), tolerance);
    const auto found = torch::autograd::grad({y}, {qkv}, {along.to(type)});
    EXPECT_LT(difference(found[0].to(at::kDouble), known[0]), tolerance);
  }
}

// A later position has no effect, even if its score would be huge.
TEST(CausalAttentionTest, LaterScoresDoNotReachGradients) {
  at::manual_seed(3);
  at::Tensor qkv = at::randn({1, 100, 3 * 8}, at::kFloat);
  qkv.narrow(1, 90, 10).narrow(2, 8, 8).mul_(1e6);
  qkv.requires_grad_();
  const at::Tensor y = causal_attention(qkv, 2);
  const auto found = torch::autograd::grad({y.narrow(1, 0, 90).sum()}, {qkv});
  EXPECT_TRUE(found[0].isfinite().all().item<bool>());
  EXPECT_TRUE(found[0].narrow(1, 90, 10).eq(0).all().item<bool>());
}

TEST(CausalAttentionTest, BitsDoNotDependOnBatchAndThreads) {
  at::manual_seed(4);
  const at::Tensor all = at::randn({5, 200, 3 * 6 * 16}, at::kFloat);
  const at::Tensor along = at::randn({5, 200, 6 * 16}, at::kFloat);
  const auto gradient = [&](std::int64_t first, std::int64_t count) {
    const at::Tensor qkv = all.narrow(0, first, count).clone().requires_grad_();
    return torch::autograd::grad({causal_attention(qkv, 6)}, {qkv}, {along.narrow(0, first, count)})[0];
  };
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor whole = gradient(0, 5);
  for (const int used : {1, 3}) {
    at::set_num_threads(used);
    for (std::int64_t i = 0; i < 5; ++i) EXPECT_TRUE(gradient(i, 1).equal(whole.narrow(0, i, 1))) << i << ' ' << used;
  }
  EXPECT_TRUE(gradient(0, 5).equal(whole));
  at::set_num_threads(threads);
}

TEST(CausalAttentionTest, IsKeptAmongProducts) {
  at::manual_seed(5);
  const at::Tensor first = at::randn({2, 70, 3 * 8}, at::kFloat).requires_grad_();
  const at::Tensor other = at::randn({2, 70, 3 * 8}, at::kFloat).requires_grad_();
  KeptOutputs kept(find_operations(products()));
  const auto run = [&](KeptOutputs::Scope::Mode mode, const at::Tensor& qkv) {
    const KeptOutputs::Scope scope(kept, mode);
    return causal_attention(qkv, 2);
  };
  const at::Tensor y = run(KeptOutputs::Scope::Mode::kKeep, first);
  EXPECT_TRUE(run(KeptOutputs::Scope::Mode::kTake, other).equal(y)) << "computed again";
}

TEST(CausalAttentionTest, SecondDerivativesAreRefused) {
  const at::Tensor qkv = at::randn({1, 4, 3 * 2}, at::kDouble).requires_grad_();
  const auto first = torch::autograd::grad({causal_attention(qkv, 1).square().sum()}, {qkv}, {}, true, true);
  EXPECT_TRUE(first[0].isfinite().all().item<bool>());
  EXPECT_THROW(torch::autograd::grad({first[0].square().sum()}, {qkv}), c10::Error);
}

TEST(CausalAttentionTest, RefusesWhatDoesNotFit) {
  EXPECT_THROW(causal_attention(at::zeros({2, 3}), 1), InvalidArgument);
  EXPECT_THROW(causal_attention(at::zeros({2, 3, 12}), 0), InvalidArgument);
  EXPECT_THROW(causal_attention(at::zeros({2, 3, 12}), 3), InvalidArgument);
  EXPECT_EQ(causal_attention(at::zeros({0, 3, 12}), 2).sizes().vec(), (std::vector<std::int64_t>{0, 3, 4}));
}

}  // namespace
}  // namespace reigen::nn::causal_attention_test
