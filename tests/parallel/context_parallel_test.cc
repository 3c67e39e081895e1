// Context parallelism: attention over ranks that divide sequences is that over whole sequences.
#include "reigen/parallel/context_parallel.h"

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "harness/ranks.h"
#include "harness/torch.h"
#include "reigen/base/error.h"
#include "reigen/nn/causal_attention.h"
#include "reigen/nn/rotary.h"
#include "reigen/nn/sequence_part.h"

namespace reigen::parallel::context_parallel_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Rank;

constexpr std::int64_t kBatch = 2, kHeads = 4, kLength = 24, kWidth = 6;

at::Tensor numbers(at::IntArrayRef shape, double seed) {
  const std::int64_t count = c10::multiply_integers(shape);
  return at::sin(at::arange(count, at::kDouble) * (1.7 + seed) + seed).view(shape);
}

struct Whole {
  std::vector<at::Tensor> inputs = {};
  at::Tensor result = {};
  std::vector<at::Tensor> gradients = {};
};

using Attention = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// Result and gradients of one process.
Whole whole(const std::vector<at::Tensor>& inputs, const Attention& attention) {
  Whole all;
  for (const at::Tensor& one : inputs) all.inputs.push_back(one.clone().requires_grad_(true));
  all.result = attention(all.inputs);
  (all.result * numbers(all.result.sizes(), 9)).sum().backward();
  for (const at::Tensor& one : all.inputs) all.gradients.push_back(one.grad());
  return all;
}

// Each rank computes its tokens, which lie along `dimension` of all tensors.
void expect_the_same_on_ranks(int ranks, const std::vector<at::Tensor>& inputs, std::int64_t dimension,
                              const Attention& attention, double tolerance = 1e-12) {
  ContextParallel::stop_on_this_thread();
  const Whole expected = whole(inputs, attention);
  const at::Tensor weights = numbers(expected.result.sizes(), 9);
  testing::run_ranks({.ranks = ranks}, [&](Rank& rank) {
    const ContextParallel context(Mesh(rank.world(), {{"cp", ranks}}));
    context.use_on_this_thread();
    std::vector<at::Tensor> own;
    for (const at::Tensor& one : inputs) own.push_back(context.take(one, dimension).clone().requires_grad_(true));
    const at::Tensor result = attention(own);
    EXPECT_LT((result - context.take(expected.result.detach(), dimension)).abs().max().item<double>(), tolerance);
    (result * context.take(weights, dimension).to(result.scalar_type())).sum().backward();
    for (std::size_t i = 0; i < own.size(); ++i) {
      const at::Tensor gradient = context.take(expected.gradients[i], dimension);
      EXPECT_LT((own[i].grad() - gradient).abs().max().item<double>(), tolerance) << "input " << i;
    }
    ContextParallel::stop_on_this_thread();
  });
}

std::vector<at::Tensor> queries_keys_values(std::int64_t key_heads = kHeads) {
  return {numbers({kBatch, kHeads, kLength, kWidth}, 1), numbers({kBatch, key_heads, kLength, kWidth}, 2),
          numbers({kBatch, key_heads, kLength, kWidth}, 3)};
}

class Sequences : public ::testing::TestWithParam<int> {};

TEST_P(Sequences, AttentionOfLibTorchIsThatOfWholeSequences) {
  for (const bool is_causal : {true, false}) {
    SCOPED_TRACE(is_causal);
    expect_the_same_on_ranks(GetParam(), queries_keys_values(), 2, [&](const std::vector<at::Tensor>& in) {
      return at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, is_causal);
    });
  }
  expect_the_same_on_ranks(GetParam(), queries_keys_values(), 2, [](const std::vector<at::Tensor>& in) {
    return at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, true, /*scale=*/0.3);
  });
}

TEST_P(Sequences, HeadsMayShareKeys) {
  expect_the_same_on_ranks(GetParam(), queries_keys_values(2), 2, [](const std::vector<at::Tensor>& in) {
    return at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, true, {}, /*enable_gqa=*/true);
  });
}

TEST_P(Sequences, CausalAttentionIsThatOfWholeSequences) {
  expect_the_same_on_ranks(GetParam(), {numbers({kBatch, kLength, 3 * kHeads * kWidth}, 4)}, 1,
                           [](const std::vector<at::Tensor>& in) { return nn::causal_attention(in[0], kHeads); });
}

TEST_P(Sequences, RotaryAnglesAreThoseOfTheTokens) {
  const nn::RotaryTable table = nn::rotary_table(kLength, kWidth, 100, at::kDouble);
  expect_the_same_on_ranks(GetParam(), {numbers({kBatch, kLength, kHeads, kWidth}, 5)}, 1,
                           [&](const std::vector<at::Tensor>& in) { return nn::rotary(in[0], table); });
}

TEST_P(Sequences, RowsOfATableAreThoseOfTheTokens) {
  const at::Tensor table = numbers({kLength, kWidth}, 6);
  expect_the_same_on_ranks(
      GetParam(), {numbers({kBatch, kLength, kWidth}, 7)}, 1,
      [&](const std::vector<at::Tensor>& in) { return in[0] * nn::rows_of_positions(table, in[0].size(1)); });
}

TEST_P(Sequences, HalfPrecisionIsAsGoodAsOfWholeSequences) {
  std::vector<at::Tensor> inputs = queries_keys_values();
  for (at::Tensor& one : inputs) one = one.to(at::kBFloat16);
  expect_the_same_on_ranks(
      GetParam(), inputs, 2,
      [](const std::vector<at::Tensor>& in) {
        return at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, true).to(at::kDouble);
      },
      0.05);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Sequences, ::testing::Values(1, 2, 3, 4));

// The graph of an attention goes when its result goes.
TEST(SequenceMemory, AnAttentionKeepsNothing) {
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    const at::Tensor q = numbers({1, 2, 4, 6}, 1).requires_grad_(true);
    c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> left(at::Tensor().getIntrusivePtr());
    {
      const at::Tensor y = ring_attention(q, q, q, rank.world(), true, 1);
      left = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>(y.getIntrusivePtr());
      y.sum().backward();
    }
    EXPECT_TRUE(left.expired());
  });
}

// A wrapper without context parallelism computes with whole sequences.
TEST(SequenceMemory, AnotherModelOnTheThreadIsWhole) {
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    const ContextParallel context(Mesh(rank.world(), {{"cp", 2}}));
    context.use_on_this_thread();
    EXPECT_NE(nn::sequence_part(), nullptr);
    ContextParallel().use_on_this_thread();
    EXPECT_EQ(nn::sequence_part(), nullptr);
    context.use_on_this_thread();
    ContextParallel(Mesh(Communicator(), {{"cp", 1}})).use_on_this_thread();
    EXPECT_EQ(nn::sequence_part(), nullptr);
  });
}

TEST(SequenceRefusals, LengthsThatCannotBeDivided) {
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    const ContextParallel context(Mesh(rank.world(), {{"cp", 2}}));
    try {
      static_cast<void>(context.take(at::zeros({3, 10})));
      ADD_FAILURE();
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("[3, 10], its dimension 1, 2 ranks"), HasSubstr("a multiple of 4"),
                                      HasSubstr("8 or 12 tokens")));
    }
    EXPECT_THROW(static_cast<void>(context.take(at::zeros({3}))), InvalidArgument);
    EXPECT_TRUE(at::equal(context.take(at::arange(8), 0),
                          rank.rank() == 0 ? at::tensor({0, 1, 6, 7}) : at::tensor({2, 3, 4, 5})));
  });
}

TEST(SequenceRefusals, AttentionThatIsNotPossible) {
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    const ContextParallel context(Mesh(rank.world(), {{"cp", 2}}));
    context.use_on_this_thread();
    const at::Tensor q = at::ones({1, 1, 4, 2}, at::kDouble).requires_grad_(true);
    const auto refusal = [&](const std::function<void()>& body) {
      try {
        body();
      } catch (const std::exception& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    EXPECT_THAT(refusal([&] {
                  at::scaled_dot_product_attention(q, q, q, at::zeros({4, 4}, at::kDouble));
                }),
                HasSubstr("a mask"));
    EXPECT_THAT(refusal([&] { at::scaled_dot_product_attention(q, q, q, {}, 0.1, true); }), HasSubstr("dropout 0.1"));
    EXPECT_THAT(refusal([&] { at::scaled_dot_product_attention(q[0], q[0], q[0], {}, 0, true); }),
                HasSubstr("a query of 3 dimensions"));
    EXPECT_THAT(refusal([&] {
                  const at::Tensor keys = at::ones({1, 1, 6, 2}, at::kDouble);
                  at::scaled_dot_product_attention(q, keys, keys, {}, 0, true);
                }),
                HasSubstr("query [1, 1, 4, 2], key [1, 1, 6, 2]"));
    EXPECT_THAT(refusal([&] { nn::rows_of_positions(at::zeros({7, 2}), 4); }), HasSubstr("7 rows"));
    EXPECT_THAT(refusal([&] { nn::rows_of_positions(at::zeros({9, 2}), 3); }), HasSubstr("3 tokens"));
    const at::Tensor y = at::scaled_dot_product_attention(q, q, q, {}, 0, true);
    EXPECT_THAT(refusal([&] { torch::autograd::grad({y.sum()}, {q}, {}, true, /*create_graph=*/true); }),
                HasSubstr("second derivatives"));
    EXPECT_THAT(refusal([&] {
                  at::Tensor changed = at::scaled_dot_product_attention(q, q, q, {}, 0, true);
                  changed.mul_(2);
                  changed.sum().backward();
                }),
                HasSubstr("changed in place"));
    ContextParallel::stop_on_this_thread();
    EXPECT_EQ(nn::sequence_part(), nullptr);
  });
}

}  // namespace
}  // namespace reigen::parallel::context_parallel_test
