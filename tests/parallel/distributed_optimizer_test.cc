// Compares DistributedOptimizer with data_parallel() and with one process.
#include "reigen/parallel/distributed_optimizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "reigen/nn/activation_checkpoint.h"
#include "reigen/parallel/strategies.h"

namespace reigen::parallel::distributed_optimizer_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

torch::optim::SGD sgd(const torch::nn::Module& model, double lr = 0.1) {
  return torch::optim::SGD(model.parameters(), torch::optim::SGDOptions(lr).momentum(0.9));
}

// The batch of a step, in fp64, with rows for up to 4 ranks and 3 passes.
at::Tensor inputs_of(int step) { return numbers(static_cast<std::uint64_t>(step) + 1, {24, 4}); }
at::Tensor targets_of(int step) { return numbers(static_cast<std::uint64_t>(step) + 1000, {24, 3}); }

template <class Model>
at::Tensor loss_of(Model& model, const at::Tensor& inputs, const at::Tensor& targets) {
  return torch::mse_loss(model.forward(inputs), targets);
}

constexpr int kSteps = 5;

// Trains in one process with the whole batch. `before_step` may change gradients.
Tensors alone(
    const std::function<std::unique_ptr<torch::optim::Optimizer>(Mlp&)>& make,
    const std::function<void(Mlp&)>& before_step = [](Mlp&) {}) {
  at::set_num_threads(1);
  Mlp model;
  const auto optimizer = make(model);
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    loss_of(model, inputs_of(step), targets_of(step)).backward();
    before_step(model);
    optimizer->step();
  }
  return values_of(model);
}

Tensors alone_with_sgd() {
  return alone([](Mlp& model) { return std::make_unique<torch::optim::SGD>(sgd(model)); });
}

// The backward of this rank on its rows of a step.
template <class Model>
void own_backward(Model& model, int step, Communicator& world, at::ScalarType type = at::kDouble) {
  loss_of(model, share(inputs_of(step), world).to(type), share(targets_of(step), world).to(type)).backward();
}

template <class Make>
void expect_bits_of_data_parallel(Make make, const StrategyFactory& strategy = {}) {
  for (const int ranks : {2, 3, 4}) {
    const auto pairs = on_ranks(ranks, [&](Communicator& world) -> Tensors {
      Mlp first(at::kFloat);
      Mlp second(at::kFloat);
      DistributedOptimizer ours(make(first), first, world, {.bucket_mb = 0.0001, .strategy = strategy});
      auto parallel = data_parallel(second, world, {.bucket_mb = 0.0001, .strategy = strategy});
      auto stock = make(second);
      for (int step = 0; step < kSteps; ++step) {
        ours.zero_grad();
        own_backward(first, step, world, at::kFloat);
        ours.step();
        stock.zero_grad();
        parallel.prepare_forward();
        own_backward(second, step, world, at::kFloat);
        stock.step();
        parallel.after_step();
      }
      EXPECT_GT(ours.parallel().bucket_count(), 1U);
      EXPECT_TRUE(same_bits(values_of(first), values_of(second)));
      ours.parallel().settle();
      return values_of(first);
    });
    for (const Tensors& one : pairs) EXPECT_TRUE(same_bits(one, pairs[0]));
  }
}

TEST(DistributedOptimizer, GivesTheBitsOfDataParallel) {
  expect_bits_of_data_parallel([](Mlp& model) { return sgd(model); });
  expect_bits_of_data_parallel([](Mlp& model) { return torch::optim::AdamW(model.parameters(), 1e-2); });
}

TEST(DistributedOptimizer, TellsStrategiesOfEveryStep) {
  expect_bits_of_data_parallel([](Mlp& model) { return sgd(model); }, local_sgd({.every = 2}));
  expect_bits_of_data_parallel([](Mlp& model) { return sgd(model); }, compressed(at::kBFloat16));
}

TEST(DistributedOptimizer, EqualsOneProcess) {
  const Tensors expected = alone_with_sgd();
  const Tensors expected_adam =
      alone([](Mlp& model) { return std::make_unique<torch::optim::AdamW>(model.parameters(), 1e-2); });
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool adam : {false, true}) {
      const Tensors got = agreed(ranks, [adam](Communicator& world) -> Tensors {
        auto model = std::make_shared<Mlp>();  // any holder of a module is accepted
        const auto train = [&](auto optimizer) {
          for (int step = 0; step < kSteps; ++step) {
            optimizer.zero_grad();
            own_backward(*model, step, world);
            optimizer.step();
          }
        };
        if (adam) {
          train(DistributedOptimizer(torch::optim::AdamW(model->parameters(), 1e-2), model, world));
        } else {
          train(DistributedOptimizer(std::make_shared<torch::optim::SGD>(sgd(*model)), model, world));
        }
        return values_of(*model);
      });
      EXPECT_LE(distance(got, adam ? expected_adam : expected), 1e-12) << ranks << " ranks";
    }
  }
}

TEST(DistributedOptimizer, ReachesTheWrappedOne) {
  Mlp model;
  Communicator world;
  DistributedOptimizer optimizer(sgd(model, 0.5), model, world);
  static_assert(std::is_same_v<decltype(optimizer.wrapped()), torch::optim::SGD&>);
  EXPECT_EQ(optimizer.wrapped().param_groups()[0].options().get_lr(), 0.5);
}

TEST(DistributedOptimizer, AddsUpSeveralBackwardsAndAveragesTheLast) {
  const Tensors expected = alone_with_sgd();
  for (const int ranks : {2, 4}) {
    for (const bool overlap : {true, false}) {
      const Tensors got = agreed(ranks, [overlap](Communicator& world) -> Tensors {
        Mlp model;
        DistributedOptimizer optimizer(sgd(model), model, world,
                                       {.backward_passes_per_step = 3, .bucket_mb = 0.0001, .overlap = overlap});
        for (int step = 0; step < kSteps; ++step) {
          optimizer.zero_grad();
          const auto inputs = share(inputs_of(step), world).chunk(3);
          const auto targets = share(targets_of(step), world).chunk(3);
          const auto bytes = optimizer.parallel().bytes_given();
          for (std::size_t pass = 0; pass < 3; ++pass) {
            EXPECT_EQ(optimizer.parallel().bytes_given(), bytes);
            (loss_of(model, inputs[pass], targets[pass]) / 3).backward();
          }
          EXPECT_GT(optimizer.parallel().bytes_given(), bytes);
          optimizer.step();
        }
        return values_of(model);
      });
      EXPECT_LE(distance(got, expected), 1e-12) << ranks << " ranks";
    }
  }
}

TEST(DistributedOptimizer, TakesRanksWithFewerBackwardsOrNone) {
  // 3 ranks have 8 rows each, in 2 passes. Rank 1 makes one pass with all its rows, and rank 2 makes none.
  Mlp alone_model;
  auto alone_optimizer = sgd(alone_model);
  for (int step = 0; step < kSteps; ++step) {
    alone_optimizer.zero_grad();
    const auto inputs = inputs_of(step).chunk(3);
    const auto targets = targets_of(step).chunk(3);
    ((loss_of(alone_model, inputs[0], targets[0]) + loss_of(alone_model, inputs[1], targets[1])) / 3).backward();
    alone_optimizer.step();
  }
  const Tensors got = agreed(3, [](Communicator& world) -> Tensors {
    Mlp model;
    DistributedOptimizer optimizer(sgd(model), model, world, {.backward_passes_per_step = 2});
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const auto inputs = share(inputs_of(step), world).chunk(2);
      const auto targets = share(targets_of(step), world).chunk(2);
      if (world.rank() == 0) {
        for (std::size_t pass = 0; pass < 2; ++pass) (loss_of(model, inputs[pass], targets[pass]) / 2).backward();
      } else if (world.rank() == 1) {
        own_backward(model, step, world);
      }
      optimizer.step();
    }
    return values_of(model);
  });
  EXPECT_LE(distance(got, values_of(alone_model)), 1e-12);
}

// All or some gradients are computed in inner backwards.
TEST(DistributedOptimizer, CountsABackwardOnceWhereUnitsAreComputedAgain) {
  const auto made = [] {
    torch::nn::Sequential model(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
    fill(*model);
    return model;
  };
  torch::nn::Sequential alone_model = made();
  auto alone_optimizer = sgd(*alone_model);
  for (int step = 0; step < kSteps; ++step) {
    alone_optimizer.zero_grad();
    loss_of(*alone_model, inputs_of(step), targets_of(step)).backward();
    alone_optimizer.step();
  }
  for (const int every : {1, 2}) {
    const Tensors got = agreed(2, [&](Communicator& world) -> Tensors {
      torch::nn::Sequential model = made();
      const auto units = nn::units_of(*model);
      const auto again = nn::activation_checkpoint(units, {.every = every});
      DistributedOptimizer optimizer(sgd(*model), model, world, {.backward_passes_per_step = 2});
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        const auto inputs = share(inputs_of(step), world).chunk(2);
        const auto targets = share(targets_of(step), world).chunk(2);
        for (std::size_t pass = 0; pass < 2; ++pass) {
          (torch::mse_loss(nn::fold(units, inputs[pass]), targets[pass]) / 2).backward();
        }
        EXPECT_THROW(optimizer.zero_grad(), InvalidArgument);
        optimizer.step();
      }
      return values_of(*model);
    });
    EXPECT_LE(distance(got, values_of(*alone_model)), 1e-12) << every;
  }
}

TEST(DistributedOptimizer, ClipsBetweenSynchronizeAndStep) {
  const auto clip = [](Mlp& model) { torch::nn::utils::clip_grad_norm_(model.parameters(), 0.1); };
  const Tensors expected = alone([](Mlp& model) { return std::make_unique<torch::optim::SGD>(sgd(model)); }, clip);
  for (const int ranks : {1, 2, 3}) {
    for (const bool scope : {true, false}) {
      const Tensors got = agreed(ranks, [&](Communicator& world) -> Tensors {
        Mlp model;
        DistributedOptimizer optimizer(sgd(model), model, world);
        for (int step = 0; step < kSteps; ++step) {
          optimizer.zero_grad();
          own_backward(model, step, world);
          optimizer.synchronize();
          clip(model);
          if (scope) {
            const auto skip = optimizer.skip_synchronize();
            optimizer.step();
          } else {
            optimizer.step();  // nothing is left to average
          }
        }
        return values_of(model);
      });
      EXPECT_LE(distance(got, expected), 1e-12) << ranks << " ranks";
    }
  }
}

TEST(DistributedOptimizer, TakesClosures) {
  const auto run = [](auto& optimizer, Mlp& model, const at::Tensor& inputs, const at::Tensor& targets) {
    return optimizer.step([&] {
      optimizer.zero_grad();
      auto loss = loss_of(model, inputs, targets);
      loss.backward();
      return loss;
    });
  };
  const auto lbfgs = [](Mlp& model) {
    return torch::optim::LBFGS(model.parameters(),
                               torch::optim::LBFGSOptions(0.5).max_iter(6).line_search_fn("strong_wolfe"));
  };
  Mlp alone_sgd;
  Mlp alone_lbfgs;
  auto first = sgd(alone_sgd);
  auto second = lbfgs(alone_lbfgs);
  double loss_sgd = 0;
  double loss_lbfgs = 0;
  for (int step = 0; step < 3; ++step) {
    loss_sgd = run(first, alone_sgd, inputs_of(step), targets_of(step)).item<double>();
    loss_lbfgs = run(second, alone_lbfgs, inputs_of(step), targets_of(step)).item<double>();
  }
  for (const int ranks : {1, 2, 3, 4}) {
    const Tensors got = agreed(ranks, [&](Communicator& world) -> Tensors {
      Mlp model;
      double last = 0;
      DistributedOptimizer optimizer(sgd(model), model, world);
      for (int step = 0; step < 3; ++step) {
        const at::Tensor loss = run(optimizer, model, share(inputs_of(step), world), share(targets_of(step), world));
        last = loss.item<double>();
      }
      EXPECT_NEAR(last, loss_sgd, 1e-12);
      return values_of(model);
    });
    EXPECT_LE(distance(got, values_of(alone_sgd)), 1e-12) << ranks << " ranks";
    const Tensors searched = agreed(ranks, [&](Communicator& world) -> Tensors {
      Mlp model;
      DistributedOptimizer optimizer(lbfgs(model), model, world);
      double last = 0;
      for (int step = 0; step < 3; ++step) {
        const at::Tensor loss = run(optimizer, model, share(inputs_of(step), world), share(targets_of(step), world));
        last = loss.item<double>();
      }
      EXPECT_NEAR(last, loss_lbfgs, 1e-9);
      return values_of(model);
    });
    EXPECT_LE(distance(searched, values_of(alone_lbfgs)), 1e-9) << ranks << " ranks";
  }
}

TEST(DistributedOptimizer, DividesGradientsOnTheirWay) {
  const auto trained = [](double factor) {
    return agreed(3, [factor](Communicator& world) -> Tensors {
      Mlp model;
      DistributedOptimizer optimizer(sgd(model), model, world, {.gradient_predivide_factor = factor});
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        own_backward(model, step, world);
        optimizer.step();
      }
      return values_of(model);
    });
  };
  const Tensors expected = trained(1);
  EXPECT_TRUE(same_bits(trained(4), expected));
  EXPECT_LE(distance(trained(3), expected), 1e-12);
  for (const double factor : {1.0, 16.0}) {  // 2e5 is too large for fp16
    const Tensors gradient = agreed(2, [factor](Communicator& world) -> Tensors {
      torch::nn::Linear model(torch::nn::LinearOptions(1, 1).bias(false));
      DistributedOptimizer optimizer(torch::optim::SGD(model->parameters(), 0.1), model, world,
                                     {.strategy = compressed(at::kHalf), .gradient_predivide_factor = factor});
      model->forward(torch::full({1, 1}, 2e5)).sum().backward();
      return {model->weight.grad().clone()};
    });
    EXPECT_EQ(std::isfinite(gradient[0].item<float>()), factor != 1);
    if (factor != 1) {
      EXPECT_NEAR(gradient[0].item<float>(), 2e5, 200);
    }
  }
}

TEST(DistributedOptimizer, RefusesWrongUse) {
  const auto refused =
      [](std::int64_t passes,
         const std::function<void(Mlp&, DistributedOptimizer<torch::optim::SGD>&, Communicator&)>& use) {
        return errors_on(2, [&](Communicator& world) {
          Mlp model;
          DistributedOptimizer optimizer(sgd(model), model, world, {.backward_passes_per_step = passes});
          own_backward(model, 0, world);
          use(model, optimizer, world);
        });
      };
  EXPECT_THAT(refused(1, [](Mlp& model, auto&, Communicator& world) { own_backward(model, 1, world); }),
              Each(AllOf(HasSubstr("before step()"), HasSubstr("more than 1 since"))));
  EXPECT_THAT(refused(2,
                      [](Mlp& model, auto&, Communicator& world) {
                        own_backward(model, 1, world);
                        own_backward(model, 2, world);
                      }),
              Each(AllOf(HasSubstr("more than 2 since"), HasSubstr("backward_passes_per_step"))));
  EXPECT_THAT(refused(1,
                      [](Mlp& model, auto& optimizer, Communicator& world) {
                        optimizer.synchronize();
                        own_backward(model, 1, world);
                      }),
              Each(HasSubstr("before step()")));
  for (const std::int64_t passes : {1, 2}) {
    EXPECT_THAT(refused(passes, [](Mlp&, auto& optimizer, Communicator&) { optimizer.zero_grad(); }),
                Each(HasSubstr("zero_grad() between backward and step()")));
    EXPECT_THAT(refused(passes,
                        [passes](Mlp& model, auto& optimizer, Communicator& world) {
                          optimizer.synchronize();
                          optimizer.zero_grad();  // the step is skipped
                          for (std::int64_t i = 0; i < passes; ++i) own_backward(model, 1, world);
                          optimizer.step();
                        }),
                Each("no error"));
  }
  EXPECT_THAT(refused(1,
                      [](Mlp&, auto& optimizer, Communicator&) {
                        const auto skip = optimizer.skip_synchronize();
                        optimizer.step();
                      }),
              Each(HasSubstr("no synchronize() since")));
  EXPECT_THAT(refused(1,
                      [](Mlp&, auto& optimizer, Communicator&) {
                        const auto skip = optimizer.skip_synchronize();
                        optimizer.step([] { return at::Tensor(); });
                      }),
              Each(HasSubstr("with a closure")));
}

TEST(DistributedOptimizer, RefusesOptionsAndModelsThatDoNotFit) {
  const auto made = [](const std::function<DistributedOptimizerOptions(int rank)>& options) {
    return errors_on(2, [&](Communicator& world) {
      Mlp model;
      DistributedOptimizer(sgd(model), model, world, options(world.rank()));
    });
  };
  EXPECT_THAT(made([](int) { return DistributedOptimizerOptions{.backward_passes_per_step = 0}; }),
              Each(AllOf(HasSubstr("backward_passes_per_step) is out of range"), HasSubstr("got: 0"))));
  for (const double factor : {0.0, -1.0, std::nan("")}) {
    EXPECT_THAT(made([factor](int) { return DistributedOptimizerOptions{.gradient_predivide_factor = factor}; }),
                Each(HasSubstr("gradient_predivide_factor is out of range")));
  }
  for (const auto& strategy : {parallel::diloco(), parallel::adasum()}) {
    EXPECT_THAT(
        made([&](int) { return DistributedOptimizerOptions{.strategy = strategy, .gradient_predivide_factor = 2}; }),
        Each(HasSubstr("gradient_predivide_factor is for sums of gradients")));
  }
  EXPECT_THAT(made([](int rank) { return DistributedOptimizerOptions{.backward_passes_per_step = 1 + rank}; }),
              Each(AllOf(HasSubstr("backwards_per_reduction: 1"), HasSubstr("backwards_per_reduction: 2"))));
  EXPECT_THAT(made([](int rank) { return DistributedOptimizerOptions{.gradient_predivide_factor = 2.0 + rank}; }),
              Each(AllOf(HasSubstr("divided by 2"), HasSubstr("divided by 3"))));
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          Mlp model;
                          auto stock = sgd(model);
                          stock.param_groups()[0].params().push_back(torch::ones(3).requires_grad_());
                          DistributedOptimizer(std::move(stock), model, world);
                        }),
              Each(AllOf(HasSubstr("does not train"), HasSubstr("parameter 6 of group 0"))));
}

TEST(DistributedOptimizer, GoesOnAfterABackwardThatThrew) {
  const Tensors expected = alone_with_sgd();
  for (const std::int64_t passes : {1, 2}) {
    const Tensors got = agreed(2, [passes](Communicator& world) -> Tensors {
      Mlp model;
      DistributedOptimizer optimizer(sgd(model), model, world,
                                     {.backward_passes_per_step = passes, .bucket_mb = 0.0001});
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        if (step == 2) {
          const at::Tensor loss = loss_of(model, share(inputs_of(step), world), share(targets_of(step), world));
          const auto hook = model.first->weight.register_hook(
              [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("planned"); });
          EXPECT_THROW(loss.backward(), std::exception);
          model.first->weight.remove_hook(hook);
          optimizer.zero_grad();
        }
        const auto inputs = share(inputs_of(step), world).chunk(passes);
        const auto targets = share(targets_of(step), world).chunk(passes);
        for (std::size_t pass = 0; pass < inputs.size(); ++pass) {
          (loss_of(model, inputs[pass], targets[pass]) / passes).backward();
        }
        optimizer.step();
      }
      return values_of(model);
    });
    EXPECT_LE(distance(got, expected), 1e-12);
  }
}

// Tests the option itself. Buffers are broadcast before the forward whose backward averages.
TEST(BackwardsPerReduction, IsNoSyncForAllButTheLast) {
  struct WithNorm : torch::nn::Module {
    WithNorm() {
      mlp = register_module("mlp", std::make_shared<Mlp>());
      norm = register_module("norm", torch::nn::BatchNorm1d(3));
      norm->to(at::kDouble);
    }
    at::Tensor forward(const at::Tensor& x) { return norm(mlp->forward(x)); }
    std::shared_ptr<Mlp> mlp;
    torch::nn::BatchNorm1d norm{nullptr};
  };
  const auto results = on_ranks(2, [](Communicator& world) -> Tensors {
    WithNorm first;
    WithNorm second;
    auto by_option = data_parallel(first, world, {.backwards_per_reduction = 2});
    auto by_scope = data_parallel(second, world);
    auto one = sgd(first);
    auto other = sgd(second);
    for (int step = 0; step < kSteps; ++step) {
      const bool fewer = step == 3 && world.rank() == 1;  // only takes part in the average
      const auto backward = [&](auto& parallel, int pass) {
        const auto rows = [&](const at::Tensor& batch) {
          return share(batch, world).chunk(2)[static_cast<std::size_t>(pass)];
        };
        torch::mse_loss(parallel(rows(inputs_of(step))), rows(targets_of(step))).backward();
      };
      if (!fewer) backward(by_option, 0);
      if (fewer) by_option.synchronize();
      if (!fewer) backward(by_option, 1);
      if (!fewer) {
        const auto scope = by_scope.no_sync();
        backward(by_scope, 0);
      }
      if (fewer) by_scope.synchronize();
      if (!fewer) backward(by_scope, 1);
      EXPECT_TRUE(same_bits(gradients_of(first), gradients_of(second))) << step;
      EXPECT_TRUE(same_bits(buffers_of(first), buffers_of(second))) << step;
      one.step();
      other.step();
      one.zero_grad();
      other.zero_grad();
    }
    EXPECT_TRUE(same_bits(values_of(first), values_of(second)));
    return values_of(first);
  });
  EXPECT_TRUE(same_bits(results[0], results[1]));
}

}  // namespace
}  // namespace reigen::parallel::distributed_optimizer_test
