// If replicas become different, the next backward detects it: on every rank, with exit code 81.
#include <gmock/gmock.h>

#include "harness/torch.h"
#include "parallel/check/weight_sample.h"
#include "parallel/oracle.h"
#include "reigen/parallel/distributed_optimizer.h"
#include "reigen/parallel/strategies.h"
#include "reigen/tensor/collectives.h"

namespace reigen::parallel::weights_differ_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;

using Lbfgs = torch::optim::LBFGS;
using LbfgsOptions = torch::optim::LBFGSOptions;

Lbfgs lbfgs(const torch::nn::Module& model) {
  return Lbfgs(model.parameters(), LbfgsOptions(1).max_iter(10).line_search_fn("strong_wolfe"));
}

// A loss on this rank's own samples.
at::Tensor own_loss(Mlp& model, const Communicator& world) {
  const auto seed = static_cast<std::uint64_t>(world.rank()) + 10;
  const at::Tensor x = numbers(seed, {32, 4}).to(model.first->weight.scalar_type());
  return torch::mse_loss(model.forward(x), (x.narrow(1, 0, 3) * 3).sin() + world.rank());
}

struct Found {
  int code = 0;
  std::string text = {};
};

// The error of every rank; code 0: no error.
std::vector<Found> found_on(int ranks, const std::function<void(Communicator&)>& body,
                            const std::string& backend = "auto") {
  std::vector<Found> found(static_cast<std::size_t>(ranks));
  const auto run = [&](Communicator& world) {
    at::set_num_threads(1);
    try {
      body(world);
    } catch (const Error& error) {
      found[static_cast<std::size_t>(world.rank())] = {static_cast<int>(error.exit_code()), error.what()};
      throw;
    }
  };
  try {
    run_threads(ranks, run, {.backend = backend, .timeout = std::chrono::seconds(60)});
  } catch (const Error&) {  // NOLINT: the ranks have reported it
  }
  return found;
}

auto is_named(const std::string& step) {
  return AllOf(::testing::Field(&Found::code, 81),
               ::testing::Field(&Found::text, AllOf(HasSubstr("the ranks' weights differ (" + step + " bucket 0)"),
                                                    HasSubstr("DistributedOptimizer"), HasSubstr("compare_weights"))));
}

// Here every backward counts as a step, and one call of L-BFGS makes up to 25 of them. The weights are equal as long as
// the line searches of all ranks happen to agree. The backward after the first disagreement detects it.
TEST(WeightsDiffer, AStockLbfgsIsFoundInTheStepWhereItParts) {
  for (const std::string backend : {"shared_memory", "tcp"}) {
    const auto found = found_on(
        2,
        [](Communicator& world) {
          Mlp model;
          auto parallel = data_parallel(model, world);
          auto optimizer = lbfgs(model);
          optimizer.step([&] {
            optimizer.zero_grad();
            parallel.prepare_forward();
            const at::Tensor loss = own_loss(model, world);
            loss.backward();
            return loss;
          });
        },
        backend);
    for (const Found& one : found) {
      EXPECT_EQ(one.code, 81) << backend << one.text;
      EXPECT_THAT(one.text, ContainsRegex("the ranks' weights differ \\(step [0-9]+ bucket 0\\)")) << backend;
    }
  }
}

TEST(WeightsDiffer, NotWhereTheClosureAveragesItsLoss) {
  agreed(3, [](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world);
    auto optimizer = lbfgs(model);
    for (int step = 0; step < 3; ++step) {
      optimizer.step([&] {
        optimizer.zero_grad();
        parallel.prepare_forward();
        const at::Tensor loss = own_loss(model, world);
        loss.backward();
        at::Tensor mean = loss.detach().clone();
        all_reduce_(mean, world, {.op = ReduceOp::kAvg});
        return mean;
      });
    }
    return values_of(model);
  });
}

TEST(WeightsDiffer, NotUnderDistributedOptimizer) {
  agreed(2, [](Communicator& world) {
    Mlp model;
    DistributedOptimizer optimizer(lbfgs(model), model, world);
    for (int step = 0; step < 3; ++step) {
      optimizer.step([&] {
        optimizer.zero_grad();
        const at::Tensor loss = own_loss(model, world);
        loss.backward();
        return loss;
      });
    }
    return values_of(model);
  });
}

// Four steps. After the second, rank 1 calls `otherwise`, and the other ranks do not.
void train(Communicator& world, const std::function<void(Mlp&)>& otherwise, const DataParallelOptions& options = {}) {
  Mlp model(at::kFloat);
  auto parallel = data_parallel(model, world, options);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    parallel.prepare_forward();
    model.forward(numbers(static_cast<std::uint64_t>(step), {4, 4}).to(at::kFloat)).sum().backward();
    optimizer.step();
    const at::NoGradGuard no_grad;
    if (step == 1 && world.rank() == 1) otherwise(model);
  }
}

TEST(WeightsDiffer, WhatOneRankChangesIsFoundInTheNextBackward) {
  const auto changes = [](Mlp& model) {
    for (at::Tensor& parameter : model.parameters()) parameter.mul_(1.0001);
  };
  EXPECT_THAT(found_on(3, [&](Communicator& world) { train(world, changes); }), Each(is_named("step 2")));
  // With several buckets, the comparison still covers the whole model.
  EXPECT_THAT(found_on(2, [&](Communicator& world) { train(world, changes, {.bucket_mb = 0}); }),
              Each(is_named("step 2")));
}

TEST(WeightsDiffer, NotAskedNotFound) {
  const auto changes = [](Mlp& model) { model.parameters()[0].add_(1); };
  const auto found = found_on(2, [&](Communicator& world) { train(world, changes, {.compare_weights = false}); });
  EXPECT_THAT(found, Each(::testing::Field(&Found::code, 0)));
}

TEST(WeightsDiffer, StrategiesThatLetThemPartAreNotCompared) {
  const auto nothing = [](Mlp&) {};
  const auto found = found_on(2, [&](Communicator& world) {
    train(world, nothing, {.strategy = power_sgd({})});
    Mlp model(at::kFloat);
    auto parallel = data_parallel(model, world, {.strategy = local_sgd({.every = 2, .start_step = 1})});
    torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1));
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      parallel.prepare_forward();
      own_loss(model, world).backward();
      optimizer.step();
      parallel.after_step();
    }
  });
  EXPECT_THAT(found, Each(::testing::Field(&Found::code, 0))) << found[0].text;
}

// Every weight is checked at some step, so a change of a single weight is found too.
TEST(WeightSample, SeesEveryWeightAfterSomeSteps) {
  torch::nn::Linear model(5, 3);
  auto parallel = data_parallel(model, Communicator());
  const WeightSample sample(parallel.parameters());
  std::vector<std::string> before;
  constexpr std::int64_t kSteps = 50;
  for (std::int64_t step = 0; step < kSteps; ++step) before.push_back(sample.text(step));
  const at::NoGradGuard no_grad;
  for (std::int64_t i = 0; i < 15; ++i) {
    at::Tensor flat = model->weight.view({-1});
    flat[i] += 1;
    bool seen = false;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      seen = seen || sample.text(step) != before[static_cast<std::size_t>(step)];
    }
    EXPECT_TRUE(seen) << i;
    flat[i] -= 1;
  }
}

}  // namespace
}  // namespace reigen::parallel::weights_differ_test
