// Compares SyncBatchNorm on several ranks with LibTorch's BatchNorm on the whole batch.
#include "reigen/nn/sync_batch_norm.h"

#include <gmock/gmock.h>

#include "parallel/oracle.h"
#include "reigen/base/error.h"
#include "reigen/nn/activation_checkpoint.h"

namespace reigen::testing::sync_batch_norm_test {
namespace {

using nn::SyncBatchNorm;
using nn::SyncBatchNormOptions;
using testing_oracle::agreed;
using testing_oracle::buffers_of;
using testing_oracle::distance;
using testing_oracle::gradients_of;
using testing_oracle::numbers;
using testing_oracle::on_ranks;
using testing_oracle::Tensors;
using testing_oracle::values_of;

constexpr std::int64_t kChannels = 3;

// The rows of rank r. The numbers of rows differ, and the last rank may have none.
at::Tensor rows_of(const at::Tensor& batch, int rank, const std::vector<std::int64_t>& counts) {
  std::int64_t begin = 0;
  for (int q = 0; q < rank; ++q) begin += counts[static_cast<std::size_t>(q)];
  return batch.narrow(0, begin, counts[static_cast<std::size_t>(rank)]);
}

struct Case {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> counts;
};

class SyncBatchNormCases : public ::testing::TestWithParam<Case> {};

TEST_P(SyncBatchNormCases, EqualsOneProcessOnTheWholeBatch) {
  const auto& shape = GetParam().shape;
  const auto& counts = GetParam().counts;
  const int ranks = static_cast<int>(counts.size());
  torch::nn::BatchNorm2d whole(torch::nn::BatchNorm2dOptions(kChannels).momentum(0.3));
  whole->to(torch::kDouble);
  const auto plain = [&](const at::Tensor& x) {
    return at::batch_norm(x, whole->weight, whole->bias, whole->running_mean, whole->running_var, true, 0.3, 1e-5,
                          false);
  };
  testing_oracle::fill(*whole);
  const at::Tensor weights = numbers(7, shape);
  at::Tensor batch;
  for (std::uint64_t step = 0; step < 3; ++step) {
    batch = (numbers(step, shape) * 3 + 5).requires_grad_();
    (plain(batch) * weights).sum().backward();
  }
  const auto got = on_ranks(ranks, [&](Communicator& world) {
    Communicator statistics = *world.split(0);
    SyncBatchNorm layer(SyncBatchNormOptions{.features = kChannels, .momentum = 0.3}, statistics);
    layer->to(torch::kDouble);
    testing_oracle::fill(*layer);
    at::Tensor own;
    for (std::uint64_t step = 0; step < 3; ++step) {
      own = rows_of(numbers(step, shape) * 3 + 5, world.rank(), counts).clone().requires_grad_();
      (layer(own) * rows_of(weights, world.rank(), counts)).sum().backward();
    }
    EXPECT_LT(distance({rows_of(batch.grad(), world.rank(), counts)}, {own.grad()}), 1e-11);
    EXPECT_LT(distance({whole->running_mean, whole->running_var}, {layer->running_mean, layer->running_var}), 1e-12);
    EXPECT_EQ(layer->num_batches_tracked.item<std::int64_t>(), 3);
    layer->eval();
    const at::Tensor evaluated = layer(own);
    EXPECT_LT(distance({at::batch_norm(own, layer->weight, layer->bias, layer->running_mean, layer->running_var, false,
                                       0, 1e-5, false)},
                       {evaluated}),
              1e-15);
    return gradients_of(*layer);
  });
  // Each rank has only its part of the sum that is the parameters' gradient.
  Tensors sum = got[0];
  for (int rank = 1; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + got[static_cast<std::size_t>(rank)][i];
  }
  EXPECT_LT(distance({whole->weight.grad(), whole->bias.grad()}, sum), 1e-10);
}

INSTANTIATE_TEST_SUITE_P(Shapes, SyncBatchNormCases,
                         ::testing::Values(Case{{6, kChannels}, {3, 3}}, Case{{7, kChannels}, {3, 3, 1}},
                                           Case{{5, kChannels, 4}, {5, 0}}, Case{{6, kChannels, 3, 2}, {1, 5}},
                                           Case{{4, kChannels, 2, 2, 3}, {4}}));

// A rank without a sample computes with another rank's sample and weight 0. This must have no effect, also not in
// layers before this one.
TEST(SyncBatchNorm, AStandInCountsInNoStatistics) {
  const at::Tensor batch = numbers(3, {4, kChannels});
  const auto train = [&](Communicator world, const at::Tensor& x, bool stands_in) {
    struct Net : torch::nn::Module {
      explicit Net(Communicator statistics)
          : in(register_module("in", torch::nn::Linear(kChannels, kChannels))),
            norm(register_module("norm", SyncBatchNorm(kChannels, statistics))) {
        to(torch::kDouble);
        testing_oracle::fill(*this);
      }
      torch::nn::Linear in;
      SyncBatchNorm norm;
    } net(*world.split(0));
    std::optional<nn::StandIn> stand_in;
    if (stands_in) stand_in.emplace();
    (torch::tanh(net.norm(net.in(x))).sum() * (stands_in ? 0 : 1)).backward();
    Tensors result = gradients_of(net);
    for (const at::Tensor& buffer : buffers_of(net)) result.push_back(buffer);
    return result;
  };
  const Tensors alone = train(Communicator(), batch, false);
  const auto got = on_ranks(2, [&](Communicator& world) {
    return world.rank() == 0 ? train(world, batch, false) : train(world, batch.narrow(0, 1, 1), true);
  });
  EXPECT_LT(distance(alone, got[0]), 1e-14);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(got[1][i].abs().max().item<double>(), 0) << i;
}

TEST(SyncBatchNorm, LargeMeansLoseNothing) {
  agreed(2, [](Communicator& world) {
    SyncBatchNorm layer(kChannels, *world.split(0));
    const at::Tensor x = (numbers(3, {64, kChannels}) + 4096).to(torch::kFloat);
    const at::Tensor mine = x.chunk(2)[static_cast<std::size_t>(world.rank())];
    const at::Tensor y = layer(mine);
    const at::Tensor exact =
        (x.to(torch::kDouble) - x.to(torch::kDouble).mean(0)) / (x.to(torch::kDouble).var(0, false) + 1e-5).sqrt();
    EXPECT_LT(
        (y.to(torch::kDouble) - exact.chunk(2)[static_cast<std::size_t>(world.rank())]).abs().max().item<double>(),
        2e-3);
    return buffers_of(*layer);
  });
}

TEST(SyncBatchNorm, TrainsWithoutParametersAndBuffers) {
  const at::Tensor batch = numbers(1, {6, kChannels}).requires_grad_();
  const auto loss_of = [](const at::Tensor& y) { return y.pow(3).sum(); };
  loss_of(at::batch_norm(batch, {}, {}, {}, {}, true, 0, 1e-5, false)).backward();
  on_ranks(2, [&](Communicator& world) -> Tensors {
    SyncBatchNorm layer(SyncBatchNormOptions{.features = kChannels, .affine = false, .track_running_stats = false},
                        *world.split(0));
    const at::Tensor own = testing_oracle::share(batch.detach(), world).clone().requires_grad_();
    loss_of(layer(own)).backward();
    EXPECT_LT(distance({testing_oracle::share(batch.grad(), world)}, {own.grad()}), 1e-11);
    return {};
  });
}

TEST(SyncBatchNorm, TrainsUnderDataParallelAndCheckpointing) {
  struct Front : torch::nn::Module {
    explicit Front(const Communicator& ranks) {
      in = register_module("in", torch::nn::Linear(4, kChannels));
      norm = register_module("norm", SyncBatchNorm(kChannels, ranks));
    }
    at::Tensor forward(const at::Tensor& x) { return torch::relu(norm(in(x))); }
    torch::nn::Linear in{nullptr};
    SyncBatchNorm norm{nullptr};
  };
  struct Net : torch::nn::Module {
    explicit Net(const Communicator& ranks) {
      units.emplace_back("front", register_module("front", std::make_shared<Front>(ranks)));
      out = register_module("out", torch::nn::Linear(kChannels, 2));
      to(torch::kDouble);
      testing_oracle::fill(*this);
    }
    at::Tensor forward(const at::Tensor& x) { return out(nn::fold(units, x)); }
    std::vector<nn::Unit> units;
    torch::nn::Linear out{nullptr};
  };
  const auto train = [](Communicator& world, bool checkpointed) {
    Communicator statistics = world.size() > 1 ? *world.split(0) : Communicator();
    Net model(statistics);
    std::optional<nn::ActivationCheckpoint> checkpoint;
    if (checkpointed) checkpoint.emplace(nn::activation_checkpoint(model.units));
    auto parallel = data_parallel(model, world, {.bucket_mb = 0});
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
    for (std::uint64_t step = 0; step < 4; ++step) {
      parallel(testing_oracle::share(numbers(step, {12, 4}), world)).pow(2).mean().backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    Tensors result = values_of(model);
    for (const at::Tensor& buffer : buffers_of(model)) result.push_back(buffer.to(torch::kDouble));
    return result;
  };
  Communicator alone;
  const Tensors expected = train(alone, false);
  for (const int ranks : {2, 3}) {
    for (const bool checkpointed : {false, true}) {
      const Tensors got = agreed(ranks, [&](Communicator& world) { return train(world, checkpointed); });
      EXPECT_LT(distance(expected, got), 1e-9) << ranks << checkpointed;
    }
  }
}

// The gradient of the layer's output is a constant, or depends on the input.
at::Tensor weighted(const at::Tensor& y) { return (y * numbers(7, y.sizes())).sum(); }
at::Tensor squared(const at::Tensor& y) { return y.pow(4).sum(); }

class SyncBatchNormTwice : public ::testing::TestWithParam<int> {};

TEST_P(SyncBatchNormTwice, SecondDerivativesAreRefused) {
  for (const auto& loss_of : {weighted, squared}) {
    // By backward(), or by grad() for a tensor from which the input was computed. grad() visits only the nodes on the
    // way.
    for (const bool all : {true, false}) {
      const auto texts = testing_oracle::errors_on(GetParam(), [&](Communicator& world) {
        SyncBatchNorm layer(kChannels, *world.split(0));
        layer->to(torch::kDouble);
        const at::Tensor factor = numbers(1, {kChannels}).requires_grad_();
        const at::Tensor x = numbers(2, {4, kChannels}) * factor;
        const at::Tensor dx = torch::autograd::grad({loss_of(layer(x))}, {x}, {}, true, /*create_graph=*/true)[0];
        const at::Tensor penalty = (dx.square() + x).sum();
        if (all) {
          penalty.backward();
        } else {
          static_cast<void>(torch::autograd::grad({penalty}, {factor}));
        }
      });
      EXPECT_THAT(texts, ::testing::Each(::testing::AllOf(
                             ::testing::HasSubstr("[sync_batch_norm] no second derivatives in training"),
                             ::testing::HasSubstr("fix: "), ::testing::HasSubstr("create_graph"))));
    }
  }
}

TEST_P(SyncBatchNormTwice, AGraphOfTheBackwardChangesNoBit) {
  for (const auto& loss_of : {weighted, squared}) {
    on_ranks(GetParam(), [&](Communicator& world) -> Tensors {
      SyncBatchNorm layer(kChannels, *world.split(0));
      const at::Tensor x = numbers(2, {4, kChannels}).to(torch::kFloat).requires_grad_();
      const auto gradients = [&](bool create_graph) {
        return torch::autograd::grad({loss_of(layer(x))}, {x, layer->weight, layer->bias}, {}, true, create_graph);
      };
      const Tensors plain = gradients(false);
      const Tensors with_graph = gradients(true);
      EXPECT_TRUE(testing_oracle::same_bits(plain, with_graph));
      for (std::size_t i = 0; i < plain.size(); ++i) {
        EXPECT_FALSE(plain[i].requires_grad());
        EXPECT_TRUE(with_graph[i].requires_grad());
      }
      return {};
    });
  }
}

TEST_P(SyncBatchNormTwice, EvaluationHasSecondDerivatives) {
  on_ranks(GetParam(), [](Communicator& world) -> Tensors {
    SyncBatchNorm layer(kChannels, *world.split(0));
    layer->to(torch::kDouble);
    layer->eval();
    const at::Tensor x = numbers(2, {4, kChannels}).requires_grad_();
    const at::Tensor dx = torch::autograd::grad({squared(layer(x))}, {x}, {}, true, true)[0];
    const at::Tensor twice = torch::autograd::grad({dx.sum()}, {x})[0];
    EXPECT_LT(distance({12 * x.square() / (1 + 1e-5) / (1 + 1e-5)}, {twice}), 1e-10);
    return {};
  });
}

TEST_P(SyncBatchNormTwice, AGraphOfTheBackwardTravelsToo) {
  const auto train = [](Communicator& world, bool create_graph) {
    torch::nn::Sequential model(torch::nn::Linear(4, kChannels), SyncBatchNorm(kChannels, *world.split(0)));
    model->to(torch::kDouble);
    testing_oracle::fill(*model);
    auto parallel = data_parallel(*model, world);
    squared(parallel(numbers(2, {4, 4}))).backward({}, create_graph, create_graph);
    Tensors result = gradients_of(*model);
    // A gradient with a graph refers to its parameter, which refers to the gradient. This breaks the cycle.
    for (at::Tensor& parameter : model->parameters()) parameter.mutable_grad().reset();
    return result;
  };
  EXPECT_TRUE(testing_oracle::same_bits(agreed(GetParam(), [&](Communicator& world) { return train(world, false); }),
                                        agreed(GetParam(), [&](Communicator& world) { return train(world, true); })));
}

INSTANTIATE_TEST_SUITE_P(Ranks, SyncBatchNormTwice, ::testing::Values(1, 2));

TEST(SyncBatchNorm, BadInputIsSaid) {
  Communicator alone;
  EXPECT_THROW(SyncBatchNorm(0, alone), InvalidArgument);
  EXPECT_THROW(SyncBatchNorm(SyncBatchNormOptions{.features = 2, .momentum = 1.5}, alone), InvalidArgument);
  EXPECT_THROW(SyncBatchNorm(SyncBatchNormOptions{.features = 2, .eps = -1}, alone), InvalidArgument);
  SyncBatchNorm layer(2, alone);
  EXPECT_THROW(layer(torch::ones({4, 3})), InvalidArgument);
  EXPECT_THROW(layer(torch::ones({4})), InvalidArgument);
  EXPECT_THROW(layer(torch::ones({1, 2})), InvalidArgument);
}

}  // namespace
}  // namespace reigen::testing::sync_batch_norm_test
