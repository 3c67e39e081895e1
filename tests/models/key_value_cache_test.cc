// With the cache of keys and values a decoder gives the scores that it gives without it.
#include "reigen/models/key_value_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "reigen/base/error.h"
#include "reigen/models/gpt.h"
#include "reigen/models/llama.h"

namespace reigen::models::key_value_cache_test {
namespace {

template <class Model, class Options>
Model make(const Options& options) {
  Model model(options);
  model.to(at::kDouble);
  model.initialize(3);
  // The weights are larger than usual, so that every part affects the scores.
  for (const at::Tensor& parameter : model.parameters()) {
    if (parameter.dim() == 2) parameter.detach().mul_(20);
  }
  return model;
}

// Gives the model the tokens in parts of these lengths, and compares all scores with those of one call.
template <class Model>
void expect_same_scores(Model& model, const std::vector<std::int64_t>& lengths) {
  const at::NoGradGuard no_gradients;
  std::int64_t all = 0;
  for (const std::int64_t length : lengths) all += length;
  const at::Tensor tokens = at::randint(model.options().vocab, {3, all}, at::kLong);
  const at::Tensor expected = model.forward(tokens);
  KeyValueCache cache;
  for (int turn = 0; turn < 2; ++turn) {
    std::int64_t first = 0;
    for (const std::int64_t length : lengths) {
      EXPECT_EQ(cache.positions(), first);
      const at::Tensor scores = model.forward(tokens.narrow(1, first, length), cache);
      EXPECT_LE((scores - expected.narrow(1, first, length)).abs().max().template item<double>(),
                1e-12 * expected.abs().max().template item<double>());
      first += length;
    }
    cache.clear();
  }
  // The cache is not used any more. Two forwards of LibTorch may round differently.
  EXPECT_LE((model.forward(tokens) - expected).abs().max().template item<double>(),
            1e-12 * expected.abs().max().template item<double>());
}

const std::vector<std::vector<std::int64_t>> kLengths = {{7, 1, 1}, {1, 1, 1}, {5, 4, 3, 1}, {10}, {62, 1, 3, 14}};

TEST(KeyValueCache, GptGivesTheSameScores) {
  for (const auto kernels : {nn::Kernels::kTorch, nn::Kernels::kFused}) {
    for (const bool tanh_gelu : {false, true}) {
      Gpt model = make<Gpt>(GptOptions{.vocab = 11,
                                       .layers = 2,
                                       .dim = 12,
                                       .heads = 3,
                                       .context = 80,
                                       .tied = tanh_gelu,
                                       .tanh_gelu = tanh_gelu,
                                       .kernels = kernels});
      for (const auto& lengths : kLengths) expect_same_scores(model, lengths);
    }
  }
}

TEST(KeyValueCache, LlamaGivesTheSameScores) {
  for (const auto kernels : {nn::Kernels::kTorch, nn::Kernels::kFused}) {
    for (const std::int64_t kv_heads : {4, 2, 1}) {
      Llama model = make<Llama>(LlamaOptions{.vocab = 11,
                                             .layers = 2,
                                             .dim = 32,
                                             .heads = 4,
                                             .kv_heads = kv_heads,
                                             .hidden = 24,
                                             .context = 80,
                                             .kernels = kernels});
      for (const auto& lengths : kLengths) expect_same_scores(model, lengths);
    }
  }
}

TEST(KeyValueCache, RefusesMoreThanTheContextAndAnotherBatch) {
  Llama model = make<Llama>(
      LlamaOptions{.vocab = 11, .layers = 1, .dim = 16, .heads = 2, .kv_heads = 2, .hidden = 8, .context = 4});
  KeyValueCache cache;
  const at::NoGradGuard no_gradients;
  model.forward(at::zeros({2, 3}, at::kLong), cache);
  EXPECT_THAT(
      [&] {
        model.forward(at::zeros({2, 2}, at::kLong), cache);
      },
      ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr("after 3 positions")));
  EXPECT_THAT(
      [&] {
        model.forward(at::zeros({1, 1}, at::kLong), cache);
      },
      ::testing::ThrowsMessage<InvalidArgument>(::testing::HasSubstr("clear()")));
  EXPECT_EQ(cache.positions(), 3);
  model.forward(at::zeros({2, 1}, at::kLong), cache);  // after an error the cache is as before
  EXPECT_EQ(cache.positions(), 4);
}

}  // namespace
}  // namespace reigen::models::key_value_cache_test
