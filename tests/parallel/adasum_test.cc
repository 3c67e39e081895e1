// Adasum of the changes by each rank's optimizer, and of gradients. Tests the operator, and that ranks remain equal.
#include <gmock/gmock.h>

#include <bit>

#include "parallel/oracle.h"
#include "reigen/parallel/distributed_optimizer.h"
#include "reigen/parallel/strategies.h"

namespace reigen::testing_oracle::adasum_test {
namespace {

using parallel::AdasumOf;
using parallel::StrategyFactory;
using ::testing::Each;
using ::testing::HasSubstr;

StrategyFactory adasum_of(AdasumOf of) { return parallel::adasum({.of = of}); }

// The formula of the paper.
at::Tensor sum_of_two(const at::Tensor& a, const at::Tensor& b) {
  const auto dot = [](const at::Tensor& x, const at::Tensor& y) { return (x * y).sum().item<double>(); };
  const double of_a = dot(a, a) == 0 ? 1 : 1 - dot(a, b) / (2 * dot(a, a));
  const double of_b = dot(b, b) == 0 ? 1 : 1 - dot(a, b) / (2 * dot(b, b));
  return of_a * a + of_b * b;
}

at::Tensor sum_of_all(Tensors by_rank) {
  const std::size_t inner = std::bit_floor(by_rank.size());
  for (std::size_t rank = inner; rank < by_rank.size(); ++rank) {
    by_rank[rank - inner] = sum_of_two(by_rank[rank - inner], by_rank[rank]);
  }
  by_rank.resize(inner);
  for (std::size_t half = inner / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) by_rank[i] = sum_of_two(by_rank[2 * i], by_rank[2 * i + 1]);
    by_rank.resize(half);
  }
  return by_rank[0];
}

// A loss whose gradients depend on the step and the rank, but not on the weights.
at::Tensor loss_with_own_gradients(const torch::nn::Module& model, int step, int rank) {
  at::Tensor loss = torch::zeros({}, at::kDouble);
  int which = 0;
  for (const at::Tensor& parameter : model.parameters()) {
    loss = loss +
           (parameter * numbers(static_cast<std::uint64_t>((step * 10 + rank) * 10 + which++ + 1), parameter.sizes()))
               .sum();
  }
  return loss;
}

torch::optim::AdamW adamw(const torch::nn::Module& model) {
  return torch::optim::AdamW(model.parameters(), torch::optim::AdamWOptions(0.05).weight_decay(0.1));
}

constexpr int kAdasumSteps = 5;

void append(Tensors& to, const Tensors& what) { to.insert(to.end(), what.begin(), what.end()); }

// The weights after every step, computed by one process with a model and an optimizer for each rank.
Tensors adasum_of_steps_alone(int ranks) {
  std::vector<std::unique_ptr<Mlp>> models;
  std::vector<torch::optim::AdamW> optimizers;
  for (int rank = 0; rank < ranks; ++rank) optimizers.push_back(adamw(*models.emplace_back(std::make_unique<Mlp>())));
  Tensors result;
  for (int step = 0; step < kAdasumSteps; ++step) {
    const Tensors before = values_of(*models[0]);
    std::vector<Tensors> changes(before.size());
    for (int rank = 0; rank < ranks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      optimizers[r].zero_grad();
      loss_with_own_gradients(*models[r], step, rank).backward();
      optimizers[r].step();
      const Tensors values = values_of(*models[r]);
      for (std::size_t i = 0; i < before.size(); ++i) changes[i].push_back(before[i] - values[i]);
    }
    const at::NoGradGuard no_grad;
    for (const auto& model : models) {
      for (std::size_t i = 0; i < before.size(); ++i) model->parameters()[i].copy_(before[i] - sum_of_all(changes[i]));
    }
    append(result, values_of(*models[0]));
  }
  return result;
}

class AdasumOn : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AdasumOn, ::testing::Values(2, 3, 4));

TEST_P(AdasumOn, StepsIsTheOperatorOnWhatEachOptimizerChanged) {
  const Tensors expected = adasum_of_steps_alone(GetParam());
  const Tensors bare = agreed(GetParam(), [](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world, {.strategy = parallel::adasum()});
    auto optimizer = adamw(model);
    Tensors result;
    for (int step = 0; step < kAdasumSteps; ++step) {
      optimizer.zero_grad();
      parallel.prepare_forward();
      loss_with_own_gradients(model, step, world.rank()).backward();
      optimizer.step();
      parallel.after_step();
      append(result, values_of(model));
    }
    return result;
  });
  EXPECT_LT(distance(expected, bare), 1e-12);
  const Tensors wrapped = agreed(GetParam(), [](Communicator& world) {
    Mlp model;
    parallel::DistributedOptimizer optimizer(adamw(model), model, world, {.strategy = parallel::adasum()});
    Tensors result;
    for (int step = 0; step < kAdasumSteps; ++step) {
      optimizer.zero_grad();
      loss_with_own_gradients(model, step, world.rank()).backward();
      optimizer.step();
      append(result, values_of(model));
    }
    return result;
  });
  EXPECT_TRUE(same_bits(bare, wrapped));
}

struct OneVector : torch::nn::Module {
  explicit OneVector(std::int64_t size = 4, at::ScalarType type = at::kDouble) {
    weight = register_parameter("weight", torch::ones({size}, type));
  }
  at::Tensor weight;
};

// The change of the weights in one step with rate 1, if the gradient of rank r is gradients[r].
template <class Optimizer>
at::Tensor change_by(const StrategyFactory& strategy, const Tensors& gradients) {
  return agreed(static_cast<int>(gradients.size()), [&](Communicator& world) -> Tensors {
    OneVector model(gradients[0].numel());
    auto parallel = data_parallel(model, world, {.strategy = strategy});
    Optimizer optimizer(model.parameters(), 1.0);
    parallel.prepare_forward();
    (model.weight * gradients[static_cast<std::size_t>(world.rank())]).sum().backward();
    optimizer.step();
    parallel.after_step();
    return {1 - model.weight.detach()};
  })[0];
}

TEST_P(AdasumOn, EitherAveragesWhatAgreesAndAddsWhatIsOrthogonal) {
  const auto ranks = static_cast<std::size_t>(GetParam());
  for (const AdasumOf of : {AdasumOf::kSteps, AdasumOf::kGradients}) {
    const auto change = [&](const Tensors& gradients) {
      return change_by<torch::optim::SGD>(adasum_of(of), gradients);
    };
    const at::Tensor one = numbers(1, {20});
    EXPECT_LT(distance({one}, {change(Tensors(ranks, one))}), 1e-14);
    Tensors of_one_rank(ranks, at::zeros_like(one));
    of_one_rank.back() = one;
    EXPECT_LT(distance({one}, {change(of_one_rank)}), 1e-14);
    Tensors apart;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      apart.push_back(at::zeros_like(one));
      apart.back().narrow(0, static_cast<std::int64_t>(rank) * 5, 5).copy_(one.narrow(0, 0, 5));
    }
    EXPECT_LT(distance({at::stack(apart).sum(0)}, {change(apart)}), 1e-14);
  }
}

// Adam's first step is the sign of the gradient. If gradients are summed before the step, their magnitude is lost.
TEST_P(AdasumOn, StepsAddsUpWhatOptimizersThatScaleGradientsMake) {
  const at::Tensor rows =
      torch::tensor({{1, 1, 1, 1}, {1, -1, 1, -1}, {1, 1, -1, -1}, {1, -1, -1, 1}}, at::kDouble) * 0.3;
  Tensors gradients;
  for (std::int64_t rank = 0; rank < GetParam(); ++rank) gradients.push_back(rows[rank]);
  const auto first = [&](AdasumOf of) {
    const auto change = change_by<torch::optim::Adam>(adasum_of(of), gradients);
    return change[0].item<double>();
  };
  EXPECT_NEAR(first(AdasumOf::kSteps), GetParam(), 1e-5);
  EXPECT_NEAR(first(AdasumOf::kGradients), 1, 1e-5);
}

TEST(Adasum, OfStepsTakesParametersThatOneRankUses) {
  const Tensors values = agreed(2, [](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world, {.strategy = parallel::adasum()});
    optim::SGD optimizer(parallel.parameters(), {.lr = 1});
    parallel.prepare_forward();
    (world.rank() == 1 ? model.first->bias : model.third->bias).sum().backward();
    optimizer.step();
    parallel.after_step();
    return values_of(model);
  });
  const Mlp start;
  Tensors expected = values_of(start);
  expected[1] = expected[1] - 1;
  expected[5] = expected[5] - 1;
  EXPECT_LT(distance(expected, values), 1e-14);
}

TEST(Adasum, OfStepsTakesTypesSideBySide) {
  agreed(3, [](Communicator& world) -> Tensors {
    struct Mixed : torch::nn::Module {
      at::Tensor wide = register_parameter("wide", torch::ones({3}, at::kDouble));
      at::Tensor narrow = register_parameter("narrow", torch::ones({5}, at::kFloat));
    };
    Mixed model;
    auto parallel = data_parallel(model, world, {.strategy = parallel::adasum()});
    EXPECT_EQ(parallel.parameters().size(), 2U);
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.25});
    parallel.prepare_forward();
    (model.wide.sum() + model.narrow.sum()).backward();
    optimizer.step();
    parallel.after_step();
    Tensors values = values_of(model);
    EXPECT_LT(distance({torch::full({3}, 0.75, at::kDouble), torch::full({5}, 0.75, at::kFloat)}, values), 1e-6);
    return values;
  });
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          OneVector model(4, at::kBFloat16);
                          data_parallel(model, world, {.strategy = parallel::adasum()});
                        }),
              Each(HasSubstr("[adasum] cannot bring weights of this type together")));
}

// The strategy has no state besides the weights. After a new wrapper, or settle() in between, training goes on with the
// same bits.
TEST_P(AdasumOn, StepsGoesOnFromTheWeights) {
  const auto train = [&](int pause) {
    return agreed(GetParam(), [&](Communicator& world) {
      Mlp model;
      auto optimizer = adamw(model);
      std::optional<parallel::DataParallelBase> parallel;
      for (int step = 0; step < kAdasumSteps; ++step) {
        if (step == 0 || step == pause) {
          if (parallel) parallel->settle();
          parallel.reset();
          parallel.emplace(model, world, parallel::DataParallelOptions{.strategy = parallel::adasum()});
          EXPECT_TRUE(parallel->strategy_state().empty());
        }
        optimizer.zero_grad();
        parallel->prepare_forward();
        loss_with_own_gradients(model, step, world.rank()).backward();
        optimizer.step();
        parallel->after_step();
      }
      return values_of(model);
    });
  };
  EXPECT_TRUE(same_bits(train(0), train(2)));
}

// Weights that were loaded between two steps are kept, and the next step is about an average.
TEST(Adasum, OfStepsKeepsWeightsThatWereLoaded) {
  const at::Tensor one = numbers(1, {20}) * 1e-3;
  const at::Tensor other = numbers(2, {20}) * 1e-3;
  const Tensors values = agreed(2, [&](Communicator& world) -> Tensors {
    OneVector model(20);
    auto parallel = data_parallel(model, world, {.strategy = parallel::adasum()});
    {
      const at::NoGradGuard no_grad;
      model.weight.fill_(7);
    }
    optim::SGD optimizer(parallel.parameters(), {.lr = 1});
    parallel.prepare_forward();
    (model.weight * (world.rank() == 0 ? one : other)).sum().backward();
    optimizer.step();
    parallel.after_step();
    return values_of(model);
  });
  EXPECT_LT(distance({7 - (one + other) / 2}, values), 1e-5);
}

TEST(Adasum, OfStepsSpreadsWhatIsNotFinite) {
  const auto results = on_ranks(3, [](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world, {.strategy = parallel::adasum()});
    optim::SGD optimizer(parallel.parameters(), {.lr = 1});
    (parallel(numbers(1, {4, 4})).sum() * (world.rank() == 2 ? std::nan("") : 1)).backward();
    optimizer.step();
    parallel.after_step();
    return values_of(model);
  });
  for (const Tensors& values : results) EXPECT_FALSE(values[0].isfinite().any().item<bool>());
}

TEST(Adasum, GivesTheBytesThatItPromises) {
  const auto models_given = [](int ranks) {
    std::vector<std::uint64_t> result(static_cast<std::size_t>(ranks));
    on_ranks(ranks, [&](Communicator& world) {
      Mlp model;
      auto parallel = data_parallel(model, world, {.strategy = parallel::adasum()});
      auto optimizer = adamw(model);
      for (int step = 0; step < kAdasumSteps; ++step) {
        parallel.prepare_forward();
        loss_with_own_gradients(model, step, world.rank()).backward();
        optimizer.step();
        parallel.after_step();
      }
      parallel.settle();
      result[static_cast<std::size_t>(world.rank())] =
          parallel.bytes_given() / parallel.parameters()[0].values().nbytes();
      return values_of(model);
    });
    return result;
  };
  EXPECT_THAT(models_given(2), ::testing::ElementsAre(kAdasumSteps, kAdasumSteps));
  EXPECT_THAT(models_given(4), Each(2 * kAdasumSteps));
  EXPECT_THAT(models_given(3), ::testing::ElementsAre(2 * kAdasumSteps, kAdasumSteps, kAdasumSteps));
}

TEST(Adasum, OfStepsLeavesBuffersToTheirRankUntilSettled) {
  const auto results = on_ranks(2, [](Communicator& world) {
    torch::nn::BatchNorm1d model(4);
    model->to(at::kDouble);
    auto parallel = data_parallel(model, world, {.strategy = parallel::adasum()});
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
    for (int step = 0; step < 2; ++step) {
      parallel(share(numbers(static_cast<std::uint64_t>(step), {8, 4}), world)).pow(2).sum().backward();
      optimizer.step();
      optimizer.zero_grad();
      parallel.after_step();
    }
    Tensors result = buffers_of(*model);
    parallel.settle();
    append(result, buffers_of(*model));
    return result;
  });
  const Tensors& first = results[0];
  EXPECT_GT(distance({first[0]}, {results[1][0]}), 1e-3);
  for (const Tensors& of_rank : results) {
    EXPECT_TRUE(same_bits({of_rank[3], of_rank[4], of_rank[5]}, {first[0], first[1], first[2]}));
  }
}

}  // namespace
}  // namespace reigen::testing_oracle::adasum_test
