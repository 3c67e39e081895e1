#include "reigen/nn/without_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <fstream>
#include <optional>
#include <string>

#include "nn/skip_writes.h"
#include "reigen/base/error.h"
#include "reigen/nn/init.h"

namespace reigen::nn::without_memory_test {
namespace {

std::int64_t resident_kib() {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    std::int64_t kib = 0;
    if (word == "VmRSS:" && in >> kib) return kib;
  }
  return -1;
}

TEST(WithoutMemory, AModelLargerThanTheMachineIsMade) {
  const std::int64_t before = resident_kib();
  std::optional<WithoutMemory> without(std::in_place);
  const torch::nn::Linear huge(200000, 100000);  // would take 80 GB
  without.reset();
  EXPECT_EQ(huge->weight.sizes(), (std::vector<std::int64_t>{100000, 200000}));
  EXPECT_TRUE(huge->weight.requires_grad());
  EXPECT_TRUE(has_no_memory(huge->weight));
  EXPECT_TRUE(has_no_memory(huge->weight.detach().select(0, 5)));
  EXPECT_TRUE(huge->weight[7][9].isnan().item<bool>());
  EXPECT_LT(resident_kib() - before, 64 * 1024);
}

TEST(WithoutMemory, BuffersAndConstantsHaveTheirValues) {
  const WithoutMemory without;
  torch::nn::BatchNorm1d norm(5);
  EXPECT_TRUE(has_no_memory(norm->weight));
  EXPECT_TRUE(norm->running_var.equal(at::ones({5})));
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 0);
  const torch::nn::LayerNorm layer(torch::nn::LayerNormOptions({4}));
  EXPECT_TRUE(has_no_memory(layer->bias));
  const torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(10, 3).padding_idx(2));
  EXPECT_TRUE(has_no_memory(embedding->weight));
  EXPECT_FALSE(has_no_memory(at::arange(4)));
  EXPECT_FALSE(has_no_memory(at::randn({4}) + 1));
}

TEST(WithoutMemory, ConversionsHaveNoneEither) {
  std::optional<WithoutMemory> without(std::in_place);
  torch::nn::Linear layer(3, 2);
  layer->to(at::kDouble);
  without.reset();
  EXPECT_TRUE(has_no_memory(layer->weight));
  EXPECT_EQ(layer->weight.scalar_type(), at::kDouble);
  EXPECT_EQ(layer->bias.sizes(), (std::vector<std::int64_t>{2}));
}

TEST(WithoutMemory, ShapesAreChangedAndWhatCannotBeLeftOutIsAnError) {
  const WithoutMemory without;
  at::Tensor tensor = at::empty({3, 2});
  tensor.t_();
  EXPECT_EQ(tensor.sizes(), (std::vector<std::int64_t>{2, 3}));
  tensor.requires_grad_();
  EXPECT_TRUE(tensor.requires_grad());
  tensor = tensor.detach();
  EXPECT_TRUE(has_no_memory(tensor.fill_(3).mul_(2)));
  EXPECT_THROW(at::eye_out(tensor, 2, 3), InvalidArgument);
  EXPECT_THROW(at::_foreach_mul_({at::ones({2}), tensor}, 2.0), InvalidArgument);
}

TEST(WithoutMemory, ValuesAreNotSetWithoutTheGuard) {
  std::optional<WithoutMemory> without(std::in_place);
  torch::nn::Linear layer(3, 2);
  without.reset();
  EXPECT_THROW(initialize(*layer, 7), InvalidArgument);
}

TEST(WithoutMemory, EndsWithTheGuardAndIsOfItsThread) {
  {
    const WithoutMemory outer;
    { const WithoutMemory inner; }
    EXPECT_TRUE(has_no_memory(at::empty({3})));
  }
  EXPECT_FALSE(has_no_memory(at::empty({3})));
  const torch::nn::Linear layer(3, 2);
  EXPECT_FALSE(layer->weight.isnan().any().item<bool>());
}

TEST(WithoutMemory, ValuesAreSetWhereThereIsMemoryAndTemporariesAreReal) {
  std::optional<WithoutMemory> without(std::in_place);
  torch::nn::Linear layer(3, 2);
  without.reset();
  torch::nn::Linear whole(3, 2);
  initialize(*whole, 7);
  layer->bias.set_data(at::empty({2}));
  {
    const SkipWrites to_the_weight;
    initialize(*layer, 7);
    at::Tensor made = at::empty({4});
    made.fill_(3);
    EXPECT_EQ(made.sum().item<double>(), 12);
    layer->weight.detach().copy_(at::ones({2, 3}));
  }
  EXPECT_TRUE(layer->bias.equal(whole->bias));
  EXPECT_TRUE(has_no_memory(layer->weight));
}

}  // namespace
}  // namespace reigen::nn::without_memory_test
