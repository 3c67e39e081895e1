#include "reigen/nn/embedding.h"

#include "nn/fused.h"
#include "reigen/base/error.h"

namespace reigen::nn::embedding_test {
namespace {

using namespace fused_testing;

TEST(EmbeddingTest, IsThatOfLibTorch) {
  at::manual_seed(1);
  for (const std::int64_t columns : {1, 3, 16, 1031}) {
    for (const std::int64_t tokens : {1, 5, 300}) {
      const at::Tensor ids = at::randint(tokens, {7, 11}, at::kLong);
      for (const at::ScalarType type : kTypes) {
        compare([&](const Tensors& t) { return Tensors{nn::embedding(ids, t[0])}; },
                [&](const Tensors& t) { return Tensors{at::embedding(t[0], ids)}; },
                {at::randn({tokens, columns}, at::kDouble)}, type, name_of(type, tokens, columns), 2);
      }
    }
  }
}

// Reference: rows in their order, in fp32, rounded once.
TEST(EmbeddingTest, AddsTheRowsOfATokenInTheirOrder) {
  at::manual_seed(2);
  const at::Tensor ids = at::randint(4, {500}, at::kLong);
  const at::Tensor along = at::randn({500, 5}).to(at::kBFloat16);
  const at::Tensor weight = at::randn({4, 5}).to(at::kBFloat16).requires_grad_();
  nn::embedding(ids, weight).backward(along);
  at::Tensor sums = at::zeros({4, 5});
  for (std::int64_t i = 0; i < 500; ++i) sums[ids[i].item<std::int64_t>()] += along[i].to(at::kFloat);
  EXPECT_TRUE(at::equal(weight.grad(), sums.to(at::kBFloat16)));
}

TEST(EmbeddingTest, TakesAnyShapeOfTokens) {
  const at::Tensor weight = at::randn({6, 3}).requires_grad_();
  EXPECT_EQ(nn::embedding(at::zeros({}, at::kInt), weight).sizes().vec(), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(nn::embedding(at::zeros({2, 0, 4}, at::kLong), weight).sizes().vec(),
            (std::vector<std::int64_t>{2, 0, 4, 3}));
  nn::embedding(at::zeros({2, 0}, at::kLong), weight).sum().backward();
  EXPECT_TRUE(weight.grad().eq(0).all().item<bool>());
  const at::Tensor ids = at::tensor({1, 5, 1, 2}, at::kInt).view({2, 2}).t();
  weight.mutable_grad().reset();
  nn::embedding(ids, weight).sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::tensor({0, 2, 1, 0, 0, 1}).to(at::kFloat).unsqueeze(1).expand({6, 3})));
}

TEST(EmbeddingTest, RefusesWhatDoesNotFit) {
  const at::Tensor weight = at::randn({6, 3});
  EXPECT_THROW(nn::embedding({}, weight), InvalidArgument);
  EXPECT_THROW(nn::embedding(at::zeros({2}), weight), InvalidArgument);
  EXPECT_THROW(nn::embedding(at::zeros({2}, at::kLong), at::randn({6})), InvalidArgument);
  EXPECT_THROW(nn::embedding(at::zeros({2}, at::kLong), at::zeros({6, 3}, at::kLong)), InvalidArgument);
}

}  // namespace
}  // namespace reigen::nn::embedding_test
