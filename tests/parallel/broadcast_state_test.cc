// Broadcasts the root's model and optimizer to all ranks. Every optimizer of LibTorch must go on like the root's.
#include "reigen/parallel/broadcast_state.h"

#include <gmock/gmock.h>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "reigen/parallel/distributed_optimizer.h"

namespace reigen::parallel::broadcast_state_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

at::Tensor loss_in(Mlp& model, int step, const Communicator& world = {}) {
  const auto seed = static_cast<std::uint64_t>(step);
  return torch::mse_loss(model.forward(share(numbers(seed + 1, {24, 4}), world)),
                         share(numbers(seed + 1000, {24, 3}), world));
}

TEST(BroadcastParameters, GivesTheRootsParametersAndBuffers) {
  for (const int root : {0, 1}) {
    const Tensors got = agreed(3, [root](Communicator& world) -> Tensors {
      torch::nn::Sequential model(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
      {
        torch::NoGradGuard no_grad;
        for (auto& one : model->parameters()) one.fill_(world.rank() + 1);
        for (auto& one : model->buffers()) one.fill_(world.rank() + 10);
      }
      model[0]->as<torch::nn::Linear>()->weight.requires_grad_(false);
      broadcast_parameters(*model, root, world);
      Tensors all = values_of(*model);
      for (const at::Tensor& one : buffers_of(*model)) all.push_back(one);
      return all;
    });
    ASSERT_EQ(got.size(), 7U);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(got[i].equal(torch::full_like(got[i], root + 1)));
    for (std::size_t i = 4; i < 7; ++i) EXPECT_TRUE(got[i].equal(torch::full_like(got[i], root + 10)));
  }
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          torch::nn::Linear model(3, 4 + world.rank());
                          broadcast_parameters(*model, 0, world);
                        }),
              Each(AllOf(HasSubstr("[broadcast_parameters] the models differ between rank 0 and rank 1 of 2"),
                         HasSubstr("Float [5, 3]"), HasSubstr("Float [4, 3]"))));
  EXPECT_THAT(errors_on(2, [](Communicator& world) { broadcast_parameters(*torch::nn::Linear(1, 1), 2, world); }),
              Each(AllOf(HasSubstr("root out of range"), HasSubstr("0 to 1"))));
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(const Tensors&, double lr)>;

std::vector<std::pair<std::string, MakeOptimizer>> optimizers() {
  using namespace torch::optim;
  return {
      {"SGD", [](const Tensors& p, double lr) { return std::make_unique<SGD>(p, SGDOptions(lr).momentum(0.9)); }},
      {"Adam", [](const Tensors& p, double lr) { return std::make_unique<Adam>(p, AdamOptions(lr).amsgrad(true)); }},
      {"AdamW", [](const Tensors& p, double lr) { return std::make_unique<AdamW>(p, AdamWOptions(lr)); }},
      {"RMSprop",
       [](const Tensors& p, double lr) {
         return std::make_unique<RMSprop>(p, RMSpropOptions(lr).momentum(0.5).centered(true));
       }},
      {"Adagrad", [](const Tensors& p, double lr) { return std::make_unique<Adagrad>(p, AdagradOptions(lr)); }},
      {"LBFGS", [](const Tensors& p, double lr) { return std::make_unique<LBFGS>(p, LBFGSOptions(lr).max_iter(3)); }}};
}

void make_steps(torch::optim::Optimizer& optimizer, Mlp& model, int from, int to) {
  for (int step = from; step < to; ++step) {
    optimizer.step([&] {
      optimizer.zero_grad();
      auto loss = loss_in(model, step);
      loss.backward();
      return loss;
    });
  }
}

TEST(BroadcastOptimizerState, LetsAllGoOnAsTheRootWould) {
  for (const auto& kind : optimizers()) {
    SCOPED_TRACE(kind.first);
    const MakeOptimizer& make = kind.second;
    const auto steps_on_root = [](int number) { return [number](int rank) { return rank == 1 ? number : 0; }; };
    const auto steps_elsewhere = [](int rank) { return rank == 1 ? 0 : 2; };
    const std::function<int(int)> kCases[] = {steps_on_root(3), steps_on_root(0), steps_elsewhere};
    for (const auto& steps : kCases) {
      Mlp alone_model;
      const auto expected = make(alone_model.parameters(), 0.01);
      make_steps(*expected, alone_model, 0, steps(1) + 2);
      const Tensors got = agreed(3, [&](Communicator& world) -> Tensors {
        Mlp model;
        const auto optimizer = make(model.parameters(), world.rank() == 1 ? 0.01 : 0.5);
        make_steps(*optimizer, model, 0, steps(world.rank()));
        broadcast_parameters(model, 1, world);
        broadcast_optimizer_state(*optimizer, 1, world);
        EXPECT_EQ(optimizer->param_groups()[0].options().get_lr(), 0.01);
        make_steps(*optimizer, model, steps(1), steps(1) + 2);
        return values_of(model);
      });
      EXPECT_TRUE(same_bits(got, values_of(alone_model)));
    }
  }
}

TEST(BroadcastOptimizerState, WorksForAWrappedOneAndItsGroups) {
  agreed(2, [](Communicator& world) -> Tensors {
    Mlp model;
    const Tensors all = model.parameters();
    const double scale = world.rank() == 0 ? 1 : 7;
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(Tensors(all.begin(), all.begin() + 2),
                        std::make_unique<torch::optim::AdamWOptions>(0.01 * scale));
    groups.emplace_back(Tensors(all.begin() + 2, all.end()),
                        std::make_unique<torch::optim::AdamWOptions>(0.02 * scale));
    // The ranks have different rates until the broadcast, so their weights differ on purpose.
    DistributedOptimizer optimizer(torch::optim::AdamW(groups), model, world, {.compare_weights = false});
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      loss_in(model, step, world).backward();
      optimizer.step();
    }
    broadcast_parameters(model, 0, world);
    broadcast_optimizer_state(optimizer.wrapped(), 0, world);
    EXPECT_EQ(optimizer.wrapped().param_groups()[1].options().get_lr(), 0.02);
    optimizer.zero_grad();
    loss_in(model, 2, world).backward();
    optimizer.step();
    return values_of(model);
  });
}

TEST(BroadcastOptimizerState, RefusesOptimizersThatDiffer) {
  EXPECT_THAT(
      errors_on(2,
                [](Communicator& world) {
                  Mlp model;
                  const auto one = optimizers()[static_cast<std::size_t>(world.rank())].second;
                  broadcast_optimizer_state(*one(model.parameters(), 0.1), 0, world);
                }),
      Each(AllOf(HasSubstr("rank 1: optimizer torch::optim::Adam"), HasSubstr("rank 0: optimizer torch::optim::SGD"))));
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          torch::nn::Linear model(3, 4 + world.rank());
                          torch::optim::SGD one(model->parameters(), 0.1);
                          broadcast_optimizer_state(one, 0, world);
                        }),
              Each(AllOf(HasSubstr("the optimizers differ"), HasSubstr("group 0 parameter 0: Float [5, 3]"))));
}

}  // namespace
}  // namespace reigen::parallel::broadcast_state_test
