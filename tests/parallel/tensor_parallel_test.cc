// Tensor parallelism: operations and models whose weights are divided compute what whole ones compute.
#include "reigen/parallel/tensor_parallel.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "harness/ranks.h"
#include "harness/torch.h"
#include "layout/packing.h"
#include "reigen/base/error.h"
#include "reigen/optim/adamw.h"
#include "reigen/parallel/data_parallel.h"
#include "reigen/parallel/tensor_operations.h"
#include "reigen/tensor/collectives.h"

namespace reigen::parallel::tensor_parallel_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Rank;

at::Tensor numbers(const std::vector<std::int64_t>& shape, std::int64_t seed) {
  const std::int64_t count = layout::numel(shape);
  const at::Tensor all = at::arange(count, at::kLong) * 7919 + seed * 104729;
  return ((all * all % 100003).to(at::kDouble) / 50000 - 1).view(shape);
}

at::Tensor leaf(const at::Tensor& tensor) { return tensor.clone().requires_grad_(true); }

// This rank's part of a dimension of a weight.
at::Tensor part_of(const at::Tensor& whole, std::int64_t dimension, const Communicator& world) {
  const auto [begin, size] = layout::chunk_of(whole.size(dimension), 1, world.rank(), world.size());
  return whole.narrow(dimension, begin, size).contiguous();
}

class TensorRanks : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  // Runs the body on this many ranks, with a region of all of them.
  void on_ranks(const std::function<void(const Region&)>& body) const {
    testing::run_ranks({.ranks = std::get<0>(GetParam())},
                       [&](Rank& rank) { body({.group = rank.world(), .sequence = std::get<1>(GetParam())}); });
  }
};

void expect_near(const at::Tensor& found, const at::Tensor& expected) {
  ASSERT_EQ(found.sizes(), expected.sizes());
  if (found.numel() == 0) return;
  EXPECT_LT((found - expected).abs().max().item<double>(), 1e-12);
}

TEST_P(TensorRanks, APairOfLinearLayersIsThatOfWholeWeights) {
  on_ranks([](const Region& region) {
    const at::Tensor x = leaf(numbers({2, 7, 5}, 1)), up = leaf(numbers({11, 5}, 2)), bias = leaf(numbers({11}, 3));
    const at::Tensor down = leaf(numbers({6, 11}, 4)), last = leaf(numbers({6}, 5)), weights = numbers({2, 7, 6}, 6);
    const at::Tensor expected = at::linear(at::gelu(at::linear(x, up, bias)), down, last);
    (expected * weights).sum().backward();

    const auto own = [&](const at::Tensor& whole) {
      return region.sequence ? take_part(whole, 1, region.group) : whole;
    };
    const at::Tensor x_own = leaf(own(x.detach())), last_own = leaf(last.detach());
    const at::Tensor up_own = leaf(part_of(up.detach(), 0, region.group));
    const at::Tensor bias_own = leaf(part_of(bias.detach(), 0, region.group));
    const at::Tensor down_own = leaf(part_of(down.detach(), 1, region.group));
    const at::Tensor h = at::gelu(column_parallel_linear(x_own, up_own, bias_own, region));
    const at::Tensor found = row_parallel_linear(h, down_own, last_own, region);
    expect_near(found, own(expected.detach()));
    (found * own(weights)).sum().backward();
    expect_near(x_own.grad(), own(x.grad()));
    expect_near(up_own.grad(), part_of(up.grad(), 0, region.group));
    expect_near(bias_own.grad(), part_of(bias.grad(), 0, region.group));
    expect_near(down_own.grad(), part_of(down.grad(), 1, region.group));
    expect_near(last_own.grad(), last.grad());
  });
}

TEST_P(TensorRanks, AnEmbeddingAndACrossEntropyAreThoseOfAWholeVocabulary) {
  on_ranks([](const Region& region) {
    const at::Tensor ids = at::arange(2 * 9, at::kLong).mul(5).remainder(7).view({2, 9});
    const at::Tensor table = leaf(numbers({7, 4}, 1)), weights = numbers({2, 9, 4}, 2);
    const at::Tensor expected = at::embedding(table, ids);
    (expected * weights).sum().backward();
    const auto first = layout::chunk_of(7, 1, region.group.rank(), region.group.size()).first;
    const VocabPart part{.first = first, .size = 7};
    const at::Tensor own = leaf(part_of(table.detach(), 0, region.group));
    const at::Tensor found = vocab_parallel_embedding(ids, own, part, region);
    const auto of_sequence = [&](const at::Tensor& whole) {
      return region.sequence ? take_part(whole, 1, region.group) : whole;
    };
    expect_near(found, of_sequence(expected.detach()));
    (found * of_sequence(weights)).sum().backward();
    expect_near(own.grad(), part_of(table.grad(), 0, region.group));

    const at::Tensor logits = leaf(numbers({2, 9, 7}, 3) * 30);
    at::Tensor targets = ids.clone();
    targets[1][3] = -100;  // counts for nothing
    const at::Tensor loss = at::cross_entropy_loss(logits.view({-1, 7}), targets.view({-1}));
    (loss * 3).backward();
    const at::Tensor logits_own = leaf(part_of(logits.detach(), 2, region.group));
    const at::Tensor loss_own = vocab_parallel_cross_entropy(logits_own, targets, part, region.group);
    expect_near(loss_own.detach(), loss.detach());
    (loss_own * 3).backward();
    expect_near(logits_own.grad(), part_of(logits.grad(), 2, region.group));
    const at::Tensor sum = vocab_parallel_cross_entropy(logits_own, targets, part, region.group, {.sum = true});
    expect_near(sum.detach(), loss.detach() * 17);
  });
}

TEST_P(TensorRanks, ATokenOutsideOfTheVocabularyIsNamed) {
  on_ranks([](const Region& region) {
    const at::Tensor ids = at::tensor({3, 7, 1}, at::kLong).view({1, 3});
    const auto [first, count] = layout::chunk_of(7, 1, region.group.rank(), region.group.size());
    const auto text = [](const std::function<void()>& call) -> std::string {
      try {
        call();
      } catch (const InvalidArgument& error) {
        return error.what();
      }
      return "no error";
    };
    const VocabPart part{.first = first, .size = 7};
    const auto expected = AllOf(HasSubstr("not in the vocabulary"), HasSubstr("got: 7"), HasSubstr("0 to 6"));
    EXPECT_THAT(text([&, count = count] {
                  vocab_parallel_embedding(ids, at::zeros({count, 2}), part, region);
                }),
                expected);
    EXPECT_THAT(text([&, count = count] {
                  vocab_parallel_cross_entropy(at::zeros({1, 3, count}), ids, part, region.group);
                }),
                expected);
  });
}

INSTANTIATE_TEST_SUITE_P(TensorParallel, TensorRanks,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Bool()));

// A user's transformer: it knows nothing of Reigen. Its layers have biases, and it calls LibTorch in several ways.
struct OwnBlock : torch::nn::Module {
  OwnBlock(int dim, int heads) : width(dim / heads) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim})));
    query = register_module("query", torch::nn::Linear(dim, dim));
    key = register_module("key", torch::nn::Linear(dim, dim));
    value = register_module("value", torch::nn::Linear(dim, dim));
    out = register_module("out", torch::nn::Linear(dim, dim));
    scale = register_parameter("scale", torch::ones({dim}));
    wide = register_module("wide", torch::nn::Linear(dim, 3 * dim + 1));
    narrow = register_module("narrow", torch::nn::Linear(3 * dim + 1, dim));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto heads = [&](const at::Tensor& all) {
      return all.view({all.size(0), all.size(1), -1, width}).transpose(1, 2);
    };
    const at::Tensor n = norm->forward(x);
    const at::Tensor y = at::scaled_dot_product_attention(heads(query->forward(n)), heads(key->forward(n)),
                                                          heads(value->forward(n)), {}, 0, true);
    const at::Tensor z = x + out->forward(y.transpose(1, 2).flatten(2));
    // The functions, and the product of two dimensions, are other operations of LibTorch than a layer's forward.
    const at::Tensor rows = (z * scale).flatten(0, 1);
    const at::Tensor hidden = torch::tanh(at::linear(rows, wide->weight, wide->bias));
    return z + narrow->forward(hidden).view_as(z);
  }
  int width;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, out{nullptr}, wide{nullptr}, narrow{nullptr};
  at::Tensor scale;
};

struct OwnModel : torch::nn::Module {
  explicit OwnModel(int heads = 4) {
    tokens = register_module("tokens", torch::nn::Embedding(13, 24));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 2; ++i) blocks->push_back(std::make_shared<OwnBlock>(24, heads));
    head = register_module("head", torch::nn::Linear(24, 13));
    const at::NoGradGuard no_grad;
    std::int64_t seed = 0;
    for (at::Tensor& parameter : parameters()) parameter.set_data(numbers(parameter.sizes().vec(), ++seed) * 0.3);
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = tokens->forward(ids);
    for (const auto& block : *blocks) x = block->as<OwnBlock>()->forward(x);
    return head->forward(x);
  }
  torch::nn::Embedding tokens{nullptr};
  torch::nn::ModuleList blocks;
  torch::nn::Linear head{nullptr};
};

const Plan kOwnPlan = {{"tokens", vocabulary()},
                       {"blocks.*.[qkv]*e*", column({.block = 6})},
                       {"blocks.*.out", row({.block = 6})},
                       {"blocks.*.wide", column()},
                       {"blocks.*.narrow", row()},
                       {"head", column({.gather_output = true})}};

mesh::Mesh tensor_mesh(Rank& rank) { return mesh::Mesh(rank.world(), {{"tp", rank.size()}}); }

at::Tensor loss_of(const at::Tensor& scores) { return (scores * numbers(scores.sizes().vec(), 77)).sum(); }

TEST(TensorParallel, AModelOfTheUserComputesWhatItComputesWhole) {
  const at::Tensor ids = at::arange(20, at::kLong).mul(7).remainder(13).view({2, 10});
  OwnModel whole;
  loss_of(whole.forward(ids)).backward();
  for (const int ranks : {2, 3, 4}) {
    testing::run_ranks({.ranks = ranks}, [&](Rank& rank) {
      OwnModel model;
      const auto divided = parallelize(model, tensor_mesh(rank), kOwnPlan);
      expect_near(model.forward(ids).detach(), whole.forward(ids).detach());
      {
        const at::NoGradGuard no_grad;
        expect_near(model.forward(ids), whole.forward(ids).detach());
      }
      loss_of(model.forward(ids)).backward();
      const auto expected = whole.named_parameters();
      for (const auto& item : model.named_parameters()) {
        const at::Tensor gradient = expected[item.key()].grad();
        const auto split = divided.splits().find(item.key());
        if (split == divided.splits().end()) {
          expect_near(item.value().grad(), gradient);
          continue;
        }
        const auto dimension = static_cast<std::int64_t>(split->second.dimension);
        const auto [begin, size] =
            layout::chunk_of(gradient.size(dimension), split->second.block, rank.rank(), rank.size());
        EXPECT_LT(item.value().numel(), gradient.numel()) << item.key();
        expect_near(item.value().grad(), gradient.narrow(dimension, begin, size));
      }
    });
  }
}

TEST(TensorParallel, AnotherThreadUsesTheDividedWeightsToo) {
  const at::Tensor ids = at::arange(10, at::kLong).view({1, 10});
  const at::Tensor expected = OwnModel().forward(ids).detach();
  testing::run_ranks({.ranks = 2}, [&](Rank& rank) {
    OwnModel model;
    const auto divided = parallelize(model, tensor_mesh(rank), kOwnPlan);
    at::Tensor found;
    std::thread([&] {
      divided.use_on_this_thread();
      found = model.forward(ids).detach();
    }).join();
    expect_near(found, expected);
  });
}

// Each case must be refused on every rank, with these words.
void expect_refused(const std::function<void(Rank&)>& body, const std::vector<std::string>& words, int ranks = 2) {
  testing::run_ranks({.ranks = ranks}, [&](Rank& rank) {
    try {
      body(rank);
      ADD_FAILURE() << "no error: " << words.front();
    } catch (const InvalidArgument& error) {
      for (const std::string& word : words) EXPECT_THAT(error.what(), HasSubstr(word));
    }
  });
}

TEST(TensorParallel, APlanThatDoesNotFitIsRefused) {
  const auto with = [](Plan plan, int heads = 4) {
    return [plan = std::move(plan), heads](Rank& rank) {
      OwnModel model(heads);
      parallelize(model, tensor_mesh(rank), plan);
    };
  };
  expect_refused(with({{"blocks.*.quary", column()}}), {"blocks.*.quary", "blocks.0.query", "correct the pattern"});
  expect_refused(with({{"blocks.*", column()}, {"head", column()}}),
                 {"blocks.0 cannot be divided by the style column"});
  expect_refused(with({{"tokens", row()}}), {"tokens cannot be divided by the style row", "a linear layer"});
  expect_refused(with({{"head", vocabulary()}}), {"head cannot be divided by the style vocabulary"});
  expect_refused(with({{"head", column({.block = 6})}}), {"head.weight", "size 13", "blocks of 6"});
  expect_refused(with({{"blocks.*.query", column({.block = 24})}}), {"1 blocks of 24 for 2 ranks", "at most 1 ranks"});
  expect_refused(
      [](Rank& rank) {
        OwnModel model;
        parallelize(model, tensor_mesh(rank), kOwnPlan, {.axis = "tensor"});
      },
      {"there is no axis tensor"});
  expect_refused(
      [](Rank& rank) {
        OwnModel model;
        parallelize(model, tensor_mesh(rank), {{"head", column({.gather_output = rank.rank() == 0})}});
      },
      {"[parallelize]", "rank 1", "gather_output false"});
}

TEST(TensorParallel, AUseOfADividedWeightThatIsNoLayerIsRefused) {
  expect_refused(
      [](Rank& rank) {
        OwnModel model;
        parallelize(model, tensor_mesh(rank), kOwnPlan);
        const at::Tensor ids = at::zeros({1, 4}, at::kLong);
        const at::Tensor loss = model.forward(ids).sum() + model.head->weight.pow(2).sum();
        loss.backward();
      },
      {"head.weight is divided among 2 ranks", "aten::pow", "a linear layer"});
}

// A norm of each head's queries, and keys and values that all heads of queries share.
struct SharedKeys : torch::nn::Module {
  SharedKeys() {
    query = register_module("query", torch::nn::Linear(24, 24));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})));
    key = register_module("key", torch::nn::Linear(24, 6));
    value = register_module("value", torch::nn::Linear(torch::nn::LinearOptions(24, 6).bias(false)));
    out = register_module("out", torch::nn::Linear(24, 24));
    const at::NoGradGuard no_grad;
    std::int64_t seed = 0;
    for (at::Tensor& parameter : parameters()) parameter.set_data(numbers(parameter.sizes().vec(), ++seed) * 0.3);
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor q = norm->forward(query->forward(x).view({x.size(0), x.size(1), -1, 6})).transpose(1, 2);
    const at::Tensor y =
        at::scaled_dot_product_attention(q, key->forward(x).unsqueeze(1), value->forward(x).unsqueeze(1));
    return out->forward(y.transpose(1, 2).flatten(2));
  }
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, out{nullptr};
  torch::nn::LayerNorm norm{nullptr};
};

TEST(TensorParallel, SharedWeightsHaveTheSumOfTheGradients) {
  SharedKeys whole;
  const at::Tensor x = leaf(numbers({2, 5, 24}, 9));
  loss_of(whole.forward(x)).backward();
  testing::run_ranks({.ranks = 4}, [&](Rank& rank) {
    SharedKeys model;
    parallelize(model, tensor_mesh(rank),
                {{"query", column({.block = 6})}, {"norm", shared()}, {"[kv]*", shared()}, {"out", row({.block = 6})}});
    const at::Tensor own = leaf(x.detach());
    loss_of(model.forward(own)).backward();
    expect_near(own.grad(), x.grad());
    for (const char* name : {"norm.weight", "norm.bias", "key.weight", "key.bias", "value.weight", "out.bias"}) {
      expect_near(model.named_parameters()[name].grad(), whole.named_parameters()[name].grad());
    }
  });
}

TEST(TensorParallel, APlanThatLacksASharedWeightIsFoundInTheFirstStep) {
  expect_refused(
      [](Rank& rank) {
        SharedKeys model;
        const auto divided =
            parallelize(model, tensor_mesh(rank),
                        {{"query", column({.block = 6})}, {"[kv]*", shared()}, {"out", row({.block = 6})}});
        auto parallel = data_parallel(model, rank.world(), {.tensor_parallel = divided});
        optim::AdamW optimizer(parallel.parameters(), {});
        loss_of(parallel(numbers({2, 5, 24}, 9))).backward();
        optimizer.step();
      },
      {"different gradients of norm.weight", "shared()"});
}

TEST(TensorParallel, WhatWouldBeSilentlyWrongIsRefused) {
  const auto with = [](const std::function<void(OwnModel&)>& use) {
    return [use](Rank& rank) {
      OwnModel model;
      parallelize(model, tensor_mesh(rank), kOwnPlan);
      use(model);
    };
  };
  const at::Tensor x = numbers({1, 4, 24}, 1);
  const auto block = [](OwnModel& model) { return model.blocks[0]->as<OwnBlock>(); };
  expect_refused(with([&](OwnModel& m) {
                   at::linear(x, at::cat({block(m)->query->weight, block(m)->key->weight}));
                 }),
                 {"blocks.0.query.weight", "aten::cat"});
  expect_refused(with([&](OwnModel& m) {
                   const at::NoGradGuard no_grad;
                   at::einsum("bti,oi->bto", {x.narrow(2, 0, 12), block(m)->out->weight});
                 }),
                 {"blocks.0.out.weight"});
  expect_refused(with([&](OwnModel& m) {
                   const at::NoGradGuard no_grad;
                   at::Tensor y = at::empty({4, 12}, at::kDouble);
                   at::mm_out(y, x[0], block(m)->query->weight.t());
                 }),
                 {"blocks.0.query.weight", "aten::mm"});
  expect_refused(with([&](OwnModel&) { at::dropout(x, 0.1, true); }), {"cannot use dropout yet"});
  expect_refused(
      [](Rank& rank) {
        OwnModel model;
        parallelize(model, tensor_mesh(rank), kOwnPlan);
        parallelize(model, tensor_mesh(rank), kOwnPlan);
      },
      {"the model is divided already"});
  expect_refused(
      [](Rank& rank) {
        torch::nn::Sequential model(torch::nn::Embedding(torch::nn::EmbeddingOptions(8, 4).padding_idx(0)));
        parallelize(*model, tensor_mesh(rank), {{"0", vocabulary()}});
      },
      {"padding_idx"});
  expect_refused(
      [](Rank& rank) {
        OwnModel model;
        const auto divided = parallelize(model, mesh::Mesh(rank.world(), {{"dp", 2}, {"tp", 2}}), kOwnPlan);
        data_parallel(model, rank.world(), {.tensor_parallel = divided});
      },
      {"the axis dp, which nobody uses"}, 4);
}

TEST(TensorParallel, FrozenWeightsAreGivenAsBoxes) {
  testing::run_ranks({.ranks = 2}, [](Rank& rank) {
    OwnModel model;
    const at::Tensor whole = model.head->weight.detach().clone();
    model.head->weight.set_requires_grad(false);
    const auto divided = parallelize(model, tensor_mesh(rank), kOwnPlan);
    auto parallel = data_parallel(model, rank.world(), {.tensor_parallel = divided});
    const at::NoGradGuard no_grad;
    for (const tensor::NamedTensor& item : parallel.own_weights()) {
      if (item.name != "head.weight") continue;
      ASSERT_TRUE(item.part);
      EXPECT_EQ(item.shape, layout::Shape({13, 24}));
      expect_near(item.tensor, whole.narrow(0, item.part->offset[0], item.part->shape[0]));
    }
  });
}

TEST(TensorParallel, AMeshOfOtherRanksIsRefused) {
  expect_refused(
      [](Rank& rank) {
        OwnModel model;
        const mesh::Mesh mesh(rank.world(), {{"dp_shard", 2}, {"tp", 2}});
        const auto divided = parallelize(model, mesh, kOwnPlan);
        data_parallel(model, mesh.along("dp_shard"), {.tensor_parallel = divided});
      },
      {"does not have the ranks of the group", "dp_shard 2 x tp 2, a group of 2"}, 4);
}

}  // namespace
}  // namespace reigen::parallel::tensor_parallel_test
