// Clipping, groups, schedules and every optimizer with data parallelism: the weights must equal those of one process on
// the whole batch.
#include <gmock/gmock.h>

#include <memory>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "reigen/optim/adagrad.h"
#include "reigen/optim/adam.h"
#include "reigen/optim/clip.h"
#include "reigen/optim/ema.h"
#include "reigen/optim/lamb.h"
#include "reigen/optim/lars.h"
#include "reigen/optim/lion.h"
#include "reigen/optim/rmsprop.h"
#include "reigen/optim/schedule.h"

namespace reigen::parallel::optimization_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests

constexpr double kMaxNorm = 0.2;

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const std::vector<ParameterRange>&)>;

template <class Kind, class Options>
MakeOptimizer maker(const Options& options) {
  return [options](const std::vector<ParameterRange>& ranges) { return std::make_unique<Kind>(ranges, options); };
}

const std::vector<optim::ParameterGroup> kGroups{{.patterns = {"third.*"}, .lr_factor = 2}, optim::no_decay()};

const std::vector<std::pair<const char*, MakeOptimizer>> kOptimizers{
    {"sgd", maker<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .groups = kGroups})},
    {"adamw", maker<optim::AdamW>(optim::AdamWOptions{.lr = 0.01, .groups = kGroups})},
    {"adam", maker<optim::Adam>(optim::AdamOptions{.lr = 0.01})},
    {"adagrad", maker<optim::Adagrad>(optim::AdagradOptions{.lr = 0.01})},
    {"rmsprop", maker<optim::RMSprop>(optim::RMSpropOptions{.lr = 0.001, .momentum = 0.9})},
    {"lars", maker<optim::LARS>(optim::LARSOptions{.lr = 10, .weight_decay = 1e-3, .groups = kGroups})},
    {"lamb", maker<optim::LAMB>(optim::LAMBOptions{.lr = 0.01, .weight_decay = 0.01, .groups = kGroups})},
    {"lion", maker<optim::Lion>(optim::LionOptions{.lr = 0.001})},
};

// Weights, norms and the average of the weights after ten steps.
Tensors train(Communicator& world, const MakeOptimizer& make) {
  Mlp model;
  auto parallel = data_parallel(model, world, {});
  const auto optimizer = make(parallel.parameters());
  optim::ExponentialMovingAverage average(parallel.parameters(), {.decay = 0.9});
  std::vector<double> norms;
  const double lr = optimizer->lr();
  for (std::int64_t step = 0; step < 10; ++step) {
    const at::Tensor output = parallel(share(numbers(static_cast<std::uint64_t>(step), {12, 4}), world));
    output.square().mean().backward();
    const optim::GradientNorm norm = optim::gradient_norm(parallel.parameters());
    norms.push_back(norm.norm);
    optimizer->set_lr(optim::scheduled_lr(
        lr, step, {.kind = optim::Schedule::kCosine, .warmup_steps = 2, .total_steps = 10, .min_factor = 0.1}));
    optimizer->step({.gradient_factor = optim::clip_factor(norm.norm, kMaxNorm)});
    optimizer->zero_grad();
    average.update();
  }
  Tensors result = values_of(model);
  result.push_back(torch::tensor(norms, at::kDouble));
  const auto swapped = average.swap_in();
  for (auto& one : values_of(model)) result.push_back(one);
  return result;
}

class ClippedRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(DataParallel, ClippedRanks, ::testing::Values(2, 3));

TEST_P(ClippedRanks, EveryOptimizerGivesTheWeightsOfOneProcess) {
  for (const auto& [name, make] : kOptimizers) {
    const auto alone = agreed(1, [&, &make = make](Communicator& world) { return train(world, make); });
    const auto got = agreed(GetParam(), [&, &make = make](Communicator& world) { return train(world, make); });
    EXPECT_LE(distance(got, alone), 1e-9) << name;
    EXPECT_GT(alone[6].max().item<double>(), kMaxNorm) << "there is something to clip";
  }
}

TEST_P(ClippedRanks, ClippedMomentumIsThatOfLibTorch) {
  Mlp model;
  torch::optim::SGD reference(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (std::uint64_t step = 0; step < 10; ++step) {
    model.forward(numbers(step, {12, 4})).square().mean().backward();
    torch::nn::utils::clip_grad_norm_(model.parameters(), kMaxNorm);
    reference.step();
    reference.zero_grad();
  }
  const auto got = agreed(GetParam(), [&](Communicator& world) {
    Mlp mine;
    auto parallel = data_parallel(mine, world, {});
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1, .momentum = 0.9});
    for (std::uint64_t step = 0; step < 10; ++step) {
      parallel(share(numbers(step, {12, 4}), world)).square().mean().backward();
      optimizer.step(
          {.gradient_factor = optim::clip_factor(optim::gradient_norm(parallel.parameters()).norm, kMaxNorm)});
      optimizer.zero_grad();
    }
    return values_of(mine);
  });
  EXPECT_LE(distance(got, values_of(model)), 1e-9);
}

}  // namespace
}  // namespace reigen::parallel::optimization_test
