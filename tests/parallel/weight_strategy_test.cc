// Strategies that average weights: the mean that they keep, how far ranks may differ, and which strategies are equal.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "parallel/oracle.h"
#include "reigen/parallel/strategies.h"

namespace reigen::testing_oracle::weight_strategy_test {
namespace {

using parallel::StrategyFactory;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

struct Averaging {
  std::string name;
  StrategyFactory strategy;
};

std::vector<Averaging> all_cases() {
  return {{"local_sgd", parallel::local_sgd({.every = 3})},
          {"post_local_sgd", parallel::local_sgd({.every = 3, .start_step = 4})},
          {"hierarchical_sgd", parallel::hierarchical_sgd({.group_size = 2, .every = 2, .global_every = 2})},
          {"diloco", parallel::diloco({.every = 3, .outer_lr = 1, .outer_momentum = 0})},
          {"gossip", parallel::gossip()},
          {"gossip_exponential", parallel::gossip({.topology = parallel::Topology::kExponential})},
          {"async_gossip", parallel::async_gossip({.staleness = 3})},
          {"async_gossip_0", parallel::async_gossip({.staleness = 0})},
          {"stale_synchronous", parallel::stale_synchronous({.staleness = 2})},
          {"stale_synchronous_0", parallel::stale_synchronous({.staleness = 0})}};
}

constexpr double kLr = 0.1;

// One step with a loss whose gradient does not depend on the weights. So their mean is known, in any order of messages.
void linear_step(Mlp& model, parallel::DataParallelBase& parallel, optim::SGD& optimizer, std::uint64_t step,
                 int rank) {
  parallel.prepare_forward();
  at::Tensor loss = torch::zeros({}, torch::kDouble);
  std::uint64_t which = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    const std::uint64_t seed = (step * 100 + static_cast<std::uint64_t>(rank)) * 100 + which++;
    loss = loss + (parameter * numbers(seed, parameter.sizes())).sum();
  }
  loss.backward();
  optimizer.step();
  optimizer.zero_grad();
  parallel.after_step();
}

Tensors expected_mean(int ranks, std::uint64_t steps) {
  const Mlp model;
  Tensors values = values_of(model);
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (int rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint64_t seed = (step * 100 + static_cast<std::uint64_t>(rank)) * 100 + i;
        values[i] = values[i] - numbers(seed, values[i].sizes()) * (kLr / ranks);
      }
    }
  }
  return values;
}

class Weights : public ::testing::TestWithParam<int> {};

TEST_P(Weights, HaveTheMeanOfAllSteps) {
  const int ranks = GetParam();
  constexpr std::uint64_t kSteps = 13;
  const Tensors expected = expected_mean(ranks, kSteps);
  for (const Averaging& one : all_cases()) {
    const Tensors values = agreed(ranks, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world, {.strategy = one.strategy});
      optim::SGD optimizer(parallel.parameters(), {.lr = kLr});
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        linear_step(model, parallel, optimizer, step, world.rank());
        // The order of the ranks changes.
        const auto late = (step * 7 + static_cast<std::uint64_t>(world.rank()) * 5) % 4;
        std::this_thread::sleep_for(std::chrono::milliseconds(late));
        if (step == 7) parallel.settle();
      }
      parallel.settle();
      return values_of(model);
    });
    EXPECT_LT(distance(expected, values), 1e-12) << one.name;
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, Weights, ::testing::Values(2, 3, 4));

Tensors train(Communicator& world, const StrategyFactory& strategy, std::uint64_t steps, double momentum = 0) {
  Mlp model;
  auto parallel = data_parallel(model, world, {.strategy = strategy});
  optim::SGD optimizer(parallel.parameters(), {.lr = kLr, .momentum = momentum});
  for (std::uint64_t step = 0; step < steps; ++step) {
    parallel(share(numbers(step, {4 * world.size(), 4}), world)).pow(2).mean().backward();
    optimizer.step();
    optimizer.zero_grad();
    parallel.after_step();
  }
  return values_of(model);
}

// Averaging the weights after every step of plain SGD equals averaging the gradients.
TEST(LocalSgd, OfEveryStepIsDataParallel) {
  for (const int ranks : {2, 4}) {
    const Tensors exact = agreed(ranks, [](Communicator& world) { return train(world, parallel::plain(), 5); });
    for (const auto& strategy :
         {parallel::local_sgd({.every = 1}), parallel::diloco({.every = 1, .outer_lr = 1, .outer_momentum = 0}),
          parallel::hierarchical_sgd({.group_size = 2, .every = 1, .global_every = 1})}) {
      const Tensors local = agreed(ranks, [&](Communicator& world) { return train(world, strategy, 5); });
      EXPECT_LT(distance(exact, local), 1e-14) << ranks;
    }
  }
}

TEST(LocalSgd, BeginsLaterWhenAsked) {
  const auto run = [](std::uint64_t steps, const StrategyFactory& strategy) {
    return on_ranks(2, [&](Communicator& world) { return train(world, strategy, steps, 0.9); });
  };
  const auto later = parallel::local_sgd({.every = 3, .start_step = 4});
  EXPECT_TRUE(same_bits(run(4, parallel::plain())[0], run(4, later)[0]));
  const auto parted = run(5, later);
  EXPECT_FALSE(same_bits(parted[0], parted[1]));
  const auto together = run(7, later);
  EXPECT_TRUE(same_bits(together[0], together[1]));
}

TEST(HierarchicalSgd, AveragesGroupsMoreOftenThanAll) {
  const auto run = [](std::uint64_t steps) {
    return on_ranks(4, [&](Communicator& world) {
      return train(world, parallel::hierarchical_sgd({.group_size = 2, .every = 2, .global_every = 2}), steps);
    });
  };
  const auto alone = run(1);
  EXPECT_FALSE(same_bits(alone[0], alone[1]));
  const auto groups = run(2);
  EXPECT_TRUE(same_bits(groups[0], groups[1]));
  EXPECT_TRUE(same_bits(groups[2], groups[3]));
  EXPECT_FALSE(same_bits(groups[0], groups[2]));
  const auto all = run(4);
  EXPECT_TRUE(same_bits(all[0], all[1]));
  EXPECT_TRUE(same_bits(all[0], all[3]));
}

// Two outer steps by the formula of the paper.
TEST(Diloco, StepsOutsideWithNesterovsMomentum) {
  constexpr double kOuter = 0.7;
  constexpr double kMomentum = 0.9;
  const Tensors got = agreed(2, [](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(
        model, world, {.strategy = parallel::diloco({.every = 2, .outer_lr = kOuter, .outer_momentum = kMomentum})});
    optim::SGD optimizer(parallel.parameters(), {.lr = kLr});
    for (std::uint64_t step = 0; step < 4; ++step) linear_step(model, parallel, optimizer, step, world.rank());
    return values_of(model);
  });
  const Mlp start;
  const Tensors begin = values_of(start);
  const Tensors after_two = expected_mean(2, 2);
  const Tensors after_four = expected_mean(2, 4);
  Tensors expected;
  for (std::size_t i = 0; i < begin.size(); ++i) {
    const at::Tensor first = begin[i] - after_two[i];
    at::Tensor momentum = first;
    at::Tensor x = begin[i] - kOuter * (first + kMomentum * momentum);
    const at::Tensor second = after_two[i] - after_four[i];
    momentum = kMomentum * momentum + second;
    expected.push_back(x - kOuter * (second + kMomentum * momentum));
  }
  EXPECT_LT(distance(expected, got), 1e-12);
}

// The largest difference between ranks after one own step and `rounds` rounds of gossip.
double apart_after(int ranks, const StrategyFactory& strategy, int rounds) {
  const auto results = on_ranks(ranks, [&](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world, {.strategy = strategy});
    optim::SGD optimizer(parallel.parameters(), {.lr = kLr});
    linear_step(model, parallel, optimizer, 0, world.rank());
    for (int i = 1; i < rounds; ++i) parallel.after_step();
    const Tensors values = values_of(model);
    parallel.settle();  // receives the messages in flight
    return values;
  });
  double worst = 0;
  for (const Tensors& values : results) worst = std::max(worst, distance(results[0], values));
  return worst;
}

TEST(Gossip, BringsRanksTogether) {
  EXPECT_LT(apart_after(2, parallel::gossip(), 1), 1e-15);
  EXPECT_LT(apart_after(3, parallel::gossip(), 1), 1e-15);
  const double ring = apart_after(4, parallel::gossip(), 1);
  EXPECT_GT(ring, 1e-3);
  EXPECT_LT(apart_after(4, parallel::gossip(), 10), ring / 100);
  // After log2 P rounds every rank has data of every other rank.
  const auto exponential = parallel::gossip({.topology = parallel::Topology::kExponential});
  EXPECT_GT(apart_after(4, exponential, 1), 1e-3);
  EXPECT_LT(apart_after(4, exponential, 2), 1e-15);
}

TEST(AsyncGossip, BringsRanksTogetherInEightBits) {
  for (const std::int64_t staleness : {0, 2, 6}) {
    const auto strategy = parallel::async_gossip({.staleness = staleness});
    EXPECT_LT(apart_after(4, strategy, 400), apart_after(4, strategy, 1) / 1000) << staleness;
  }
}

// A rank runs ahead of another by the allowed number of steps, and no further.
TEST(Staleness, IsBounded) {
  constexpr int kSteps = 12;
  constexpr int kStaleness = 3;
  for (const auto& strategy :
       {parallel::async_gossip({.staleness = kStaleness}), parallel::stale_synchronous({.staleness = kStaleness})}) {
    std::atomic<int> ahead = 0;
    std::atomic<bool> reached = false;
    on_ranks(2, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world, {.strategy = strategy});
      optim::SGD optimizer(parallel.parameters(), {.lr = kLr});
      for (int step = 0; step < kSteps; ++step) {
        if (world.rank() == 1) {
          // The other rank needs no data of this rank for its next kStaleness steps.
          const int free = std::min(step + kStaleness, kSteps);
          const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
          while (ahead < free && std::chrono::steady_clock::now() < end) std::this_thread::yield();
          EXPECT_GE(ahead, free);
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          EXPECT_LE(ahead, free);
          reached = true;
        }
        linear_step(model, parallel, optimizer, static_cast<std::uint64_t>(step), world.rank());
        if (world.rank() == 0) ++ahead;
      }
      parallel.settle();
      return values_of(model);
    });
    EXPECT_TRUE(reached);
  }
}

TEST(WeightStrategies, StrategiesMustBeToldOfSteps) {
  const auto texts = errors_on(2, [](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world, {.strategy = parallel::local_sgd()});
    for (int step = 0; step < 2; ++step) parallel(numbers(1, {2, 4})).sum().backward();
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("was not told of a step"), HasSubstr("after_step()"), HasSubstr("no_sync"))));
}

TEST(WeightStrategies, GradientsMayBeAddedUpFirst) {
  agreed(2, [](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world, {.strategy = parallel::local_sgd({.every = 2})});
    optim::SGD optimizer(parallel.parameters(), {.lr = kLr});
    for (std::uint64_t step = 0; step < 4; ++step) {
      {
        const auto guard = parallel.no_sync();
        parallel(share(numbers(2 * step, {4, 4}), world)).pow(2).mean().backward();
      }
      parallel(share(numbers(2 * step + 1, {4, 4}), world)).pow(2).mean().backward();
      optimizer.step();
      optimizer.zero_grad();
      parallel.after_step();
    }
    return values_of(model);
  });
}

TEST(WeightStrategies, BytesAreWhatIsPromised) {
  constexpr std::uint64_t kSteps = 12;
  std::uint64_t model_bytes = 0;
  const auto bytes_of = [&](int ranks, const StrategyFactory& strategy) {
    std::uint64_t bytes = 0;
    on_ranks(ranks, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world, {.strategy = strategy});
      optim::SGD optimizer(parallel.parameters(), {.lr = kLr});
      for (std::uint64_t step = 0; step < kSteps; ++step) linear_step(model, parallel, optimizer, step, world.rank());
      if (world.rank() == 0) {
        bytes = parallel.bytes_given();
        model_bytes = parallel.parameters()[0].values().nbytes();
      }
      parallel.settle();
      return values_of(model);
    });
    return bytes;
  };
  const std::uint64_t three_averages = bytes_of(2, parallel::local_sgd({.every = 4}));
  const std::uint64_t model = model_bytes;
  EXPECT_EQ(three_averages, 3 * model);
  EXPECT_EQ(bytes_of(2, parallel::diloco({.every = 6})), 2 * model);
  EXPECT_EQ(bytes_of(4, parallel::hierarchical_sgd({.group_size = 2, .every = 2, .global_every = 3})), 6 * model);
  EXPECT_EQ(bytes_of(2, parallel::gossip()), kSteps * model);
  EXPECT_EQ(bytes_of(4, parallel::gossip()), 2 * kSteps * model);
  EXPECT_EQ(bytes_of(4, parallel::gossip({.topology = parallel::Topology::kExponential})), kSteps * model);
  EXPECT_EQ(bytes_of(3, parallel::stale_synchronous()), 2 * kSteps * model);
  // The whole model is one block: 1024 numbers of 8 bits, and a scale.
  EXPECT_EQ(bytes_of(2, parallel::async_gossip()), kSteps * (1024 + 4));
  EXPECT_EQ(bytes_of(4, parallel::async_gossip()), 2 * kSteps * (1024 + 4));
}

struct Normed : torch::nn::Module {
  Normed() {
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
    linear = register_module("linear", torch::nn::Linear(3, 2));
    fill(*this, at::kFloat);
  }
  at::Tensor forward(const at::Tensor& x) { return linear(norm(x)); }
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Linear linear{nullptr};
};

// With momentum 0.1 the statistics after a forward are a tenth of the batch's. Their mean over the ranks is that of the
// whole batch.
TEST(Buffers, AreAveragedWhenAsked) {
  const Tensors buffers = agreed(2, [](Communicator& world) {
    Normed model;
    auto parallel = data_parallel(model, world, {.buffers = parallel::BufferPolicy::kAverage});
    const auto input = share(numbers(1, {8, 3}).to(at::kFloat), world);
    parallel(input).sum().backward();
    parallel.settle();
    return buffers_of(model);
  });
  EXPECT_LT(distance({buffers[0]}, {numbers(1, {8, 3}).to(at::kFloat).mean(0) * 0.1}), 1e-6);
  EXPECT_EQ(buffers[2].item<std::int64_t>(), 1);
}

// Both kinds of strategy have a state with the name "step".
TEST(Strategies, OfGradientsUnderOneOfWeightsKeepTheirStatesApart) {
  on_ranks(2, [&](Communicator& world) -> Tensors {
    StrategyFactory both = parallel::local_sgd({.every = 2, .start_step = 5});
    both.gradients = parallel::power_sgd({.rank = 1, .start_step = 1}).gradients;
    Mlp model;
    auto parallel = data_parallel(model, world, {.strategy = both});
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
    for (std::uint64_t step = 0; step < 3; ++step) {
      parallel(share(numbers(step, {4, 4}), world)).sum().backward();
      optimizer.step();
      optimizer.zero_grad();
      parallel.after_step();
    }
    parallel.settle();
    std::map<std::string, at::Tensor> state = parallel.strategy_state();
    EXPECT_EQ(state.at("step").item<std::int64_t>(), 3);
    EXPECT_EQ(state.at("weights.step").item<std::int64_t>(), 3);
    for (auto& [name, tensor] : state) tensor = tensor.clone();
    state["weights.step"].fill_(7);
    parallel.load_strategy_state(state);
    EXPECT_EQ(parallel.strategy_state().at("weights.step").item<std::int64_t>(), 7);
    EXPECT_TRUE(parallel.ranks_differ());
    state.erase("weights.step");
    state["step"] = at::full({1}, 9, at::kLong);
    EXPECT_THROW(parallel.load_strategy_state(state), InvalidArgument);
    EXPECT_EQ(parallel.strategy_state().at("step").item<std::int64_t>(), 3) << "nothing is changed";
    return {torch::zeros(1)};
  });
}

}  // namespace
}  // namespace reigen::testing_oracle::weight_strategy_test
