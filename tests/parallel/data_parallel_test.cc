// Data parallelism gives the same gradients and weights as one process on the whole batch, with any optimizer and any
// options.
#include <gmock/gmock.h>
#include <torch/nn/modules/container/any.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "reigen/base/deadline.h"

namespace reigen::parallel::data_parallel_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests

at::Tensor loss_of(const at::Tensor& output) { return output.square().mean(); }

Tensors one_process_gradients(const at::Tensor& batch) {
  Mlp model;
  loss_of(model.forward(batch)).backward();
  return gradients_of(model);
}

class EveryOption : public ::testing::TestWithParam<std::tuple<int, double, bool>> {};

TEST_P(EveryOption, GradientsEqualTheFullBatch) {
  const int ranks = std::get<0>(GetParam());
  const DataParallelOptions options{.bucket_mb = std::get<1>(GetParam()), .overlap = std::get<2>(GetParam())};
  const at::Tensor batch = numbers(1, {12, 4});
  const Tensors got = agreed(ranks, [&](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world, options);
    loss_of(parallel(share(batch, world))).backward();
    return gradients_of(model);
  });
  EXPECT_LE(distance(got, one_process_gradients(batch)), 1e-14);
}

INSTANTIATE_TEST_SUITE_P(DataParallel, EveryOption,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Values(0.0, 0.0005, 1.0, 25.0),
                                            ::testing::Bool()));

// The weights after ten steps, each with another batch.
Tensors train(Communicator& world, const DataParallelOptions& options,
              const std::function<std::function<void()>(Mlp&, const std::vector<ParameterRange>&)>& make_step) {
  Mlp model;
  auto parallel = data_parallel(model, world, options);
  const auto step_and_clear = make_step(model, parallel.parameters());
  for (std::uint64_t step = 0; step < 10; ++step) {
    loss_of(parallel(share(numbers(step, {12, 4}), world))).backward();
    step_and_clear();
  }
  return values_of(model);
}

template <class Optimizer, class Options>
Tensors train_torch_alone(const Options& options) {
  Mlp model;
  Optimizer optimizer(model.parameters(), options);
  for (std::uint64_t step = 0; step < 10; ++step) {
    loss_of(model.forward(numbers(step, {12, 4}))).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  return values_of(model);
}

template <class Optimizer, class Options>
auto ours(const Options& options) {
  return [options](Mlp&, const std::vector<ParameterRange>& ranges) {
    auto optimizer = std::make_shared<Optimizer>(ranges, options);
    return std::function<void()>([optimizer] {
      optimizer->step();
      optimizer->zero_grad();
    });
  };
}

// set_to_none: -1 uses Module::zero_grad instead of the optimizer's.
template <class Optimizer, class Options>
auto stock(const Options& options, int set_to_none = 1) {
  return [options, set_to_none](Mlp& model, const std::vector<ParameterRange>&) {
    auto optimizer = std::make_shared<Optimizer>(model.parameters(), options);
    return std::function<void()>([optimizer, set_to_none, &model] {
      optimizer->step();
      if (set_to_none < 0) {
        model.zero_grad();
      } else {
        optimizer->zero_grad(set_to_none == 1);
      }
    });
  };
}

class Ranks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(DataParallel, Ranks, ::testing::Values(1, 2, 3, 4));

TEST_P(Ranks, AdamWGivesTheWeightsOfOneProcess) {
  const auto reference = train_torch_alone<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01));
  const auto got = agreed(GetParam(), [&](Communicator& world) {
    return train(world, {}, ours<optim::AdamW>(optim::AdamWOptions{.lr = 0.01}));
  });
  EXPECT_LE(distance(got, reference), 1e-9);
  EXPECT_GT(distance(got, values_of(Mlp())), 0.01) << "the weights moved";
}

TEST_P(Ranks, SGDGivesTheWeightsOfOneProcess) {
  const auto reference = train_torch_alone<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto got = agreed(GetParam(), [&](Communicator& world) {
    return train(world, {}, ours<optim::SGD>(optim::SGDOptions{.lr = 0.1, .momentum = 0.9}));
  });
  EXPECT_LE(distance(got, reference), 1e-9);
}

TEST_P(Ranks, StockOptimizersGiveTheSameWeights) {
  const auto got = agreed(GetParam(), [&](Communicator& world) {
    return train(world, {}, stock<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01)));
  });
  EXPECT_LE(distance(got, train_torch_alone<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01))), 1e-9);
  const auto sgd = agreed(GetParam(), [&](Communicator& world) {
    return train(world, {}, stock<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9)));
  });
  EXPECT_LE(distance(sgd, train_torch_alone<torch::optim::SGD>(torch::optim::SGDOptions(0.1).momentum(0.9))), 1e-9);
}

TEST_P(Ranks, EveryKindOfZeroGradWorks) {
  const auto run = [&](int set_to_none) {
    return agreed(GetParam(), [&](Communicator& world) {
      return train(world, {}, stock<torch::optim::SGD>(torch::optim::SGDOptions(0.1), set_to_none));
    });
  };
  const auto reference = train_torch_alone<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
  for (const int kind : {1, 0, -1}) EXPECT_LE(distance(run(kind), reference), 1e-12) << kind;
}

TEST(DataParallel, BucketsAndOverlapDoNotChangeABit) {
  const auto run = [](const DataParallelOptions& options) {
    return agreed(3, [&](Communicator& world) {
      return train(world, options, ours<optim::AdamW>(optim::AdamWOptions{.lr = 0.01}));
    });
  };
  const auto reference = run({});
  for (const double bucket_mb : {0.0, 0.0005, 1.0}) EXPECT_TRUE(same_bits(run({.bucket_mb = bucket_mb}), reference));
  EXPECT_TRUE(same_bits(run({.overlap = false}), reference));
}

TEST(DataParallel, BucketsAreAsAskedFor) {
  agreed(2, [](Communicator& world) -> Tensors {
    Mlp model;
    EXPECT_EQ(data_parallel(model, world, {.bucket_mb = 0}).bucket_count(), 6U);
    EXPECT_EQ(data_parallel(model, world, {.bucket_mb = 25}).bucket_count(), 1U);
    return {torch::ones(1)};
  });
}

TEST(DataParallel, RankZerosValuesAreEverybodys) {
  const auto got = agreed(3, [](Communicator& world) {
    Mlp model;
    for (auto& parameter : model.parameters()) parameter.data().add_(world.rank());
    model.second->weight.set_requires_grad(false);
    auto parallel = data_parallel(model, world);
    return values_of(model);
  });
  EXPECT_TRUE(same_bits(got, values_of(Mlp())));
}

TEST(DataParallel, TypesMayBeMixed) {
  struct Mixed : torch::nn::Module {
    Mixed() {
      first = register_module("first", torch::nn::Linear(4, 17));
      second = register_module("second", torch::nn::Linear(17, 9));
      third = register_module("third", torch::nn::Linear(9, 3));
      fill(*first, at::kDouble);
      fill(*second, at::kFloat);
      fill(*third, at::kDouble);
    }
    at::Tensor forward(const at::Tensor& x) {
      return third(torch::tanh(second(torch::tanh(first(x)).to(at::kFloat))).to(at::kDouble));
    }
    torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
  };
  const at::Tensor batch = numbers(1, {12, 4});
  Mixed reference;
  loss_of(reference.forward(batch)).backward();
  for (const double bucket_mb : {0.0, 25.0}) {
    const auto got = agreed(3, [&](Communicator& world) {
      Mixed model;
      auto parallel = data_parallel(model, world, {.bucket_mb = bucket_mb});
      EXPECT_EQ(parallel.parameters().size(), 2U);
      loss_of(parallel(share(batch, world))).backward();
      return gradients_of(model);
    });
    EXPECT_LE(distance(got, gradients_of(reference)), 1e-6);
  }
}

TEST(DataParallel, SixteenBitTypesWork) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const auto got = agreed(3, [&](Communicator& world) {
      Mlp model(type);
      auto parallel = data_parallel(model, world);
      // The gradient of the bias is 3, 6 and 9 on the ranks. No rank uses the third weight.
      (model.first->bias.sum() * (3.0 * (world.rank() + 1))).backward();
      EXPECT_FALSE(model.third->weight.grad().defined());
      return Tensors{model.first->bias.grad().to(at::kDouble)};
    });
    EXPECT_TRUE(got[0].equal(torch::full({17}, 6.0, at::kDouble))) << c10::toString(type);
  }
}

struct HeldImpl : Mlp {
  at::Tensor forward(const at::Tensor& x, double scale = 1.0) { return Mlp::forward(x) * scale; }
};
TORCH_MODULE(Held);
struct PlainImpl : Mlp {};
TORCH_MODULE(Plain);

template <class Model>
Tensors gradients_through(Communicator& world, Model& model, torch::nn::Module& module) {
  auto parallel = data_parallel(model, world);
  loss_of(parallel(share(numbers(1, {12, 4}), world))).backward();
  return gradients_of(module);
}

TEST(DataParallel, TakesModelsHoweverTheyAreHeld) {
  const auto reference = one_process_gradients(numbers(1, {12, 4}));
  const auto close = [&](const Tensors& got) { EXPECT_LE(distance(got, reference), 1e-14); };
  close(agreed(2, [](Communicator& world) {
    auto model = std::make_shared<Mlp>();
    return gradients_through(world, model, *model);
  }));
  close(agreed(2, [](Communicator& world) {
    const Held model;
    return gradients_through(world, model, *model.ptr());
  }));
  close(agreed(2, [](Communicator& world) {
    torch::nn::AnyModule model(Plain{});
    return gradients_through(world, model, *model.ptr());
  }));
  close(agreed(2, [](Communicator& world) {
    Mlp parts;
    torch::nn::Sequential model(parts.first, torch::nn::Tanh(), parts.second, torch::nn::Tanh(), parts.third);
    return gradients_through(world, model, *model);
  }));
  close(agreed(2, [](Communicator& world) {
    auto parallel = data_parallel(Held(), world);  // a temporary holder is shared
    loss_of(parallel(share(numbers(1, {12, 4}), world), 1.0)).backward();
    Tensors gradients;
    for (const auto& segment : parallel.parameters()[0].segments())
      gradients.push_back(segment.parameter.grad().clone());
    return gradients;
  }));
}

TEST(DataParallel, TheExampleOfTheReadme) {
  const auto got = agreed(2, [](Communicator& world) {
    Mlp model;
    auto parallel = data_parallel(model, world);
    auto optimizer = optim::AdamW(parallel.parameters(), {.lr = 0.05});
    double first = 0;
    double last = 0;
    for (int step = 0; step < 40; ++step) {
      auto loss = loss_of(parallel(share(numbers(1, {12, 4}), world)));
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      (step == 0 ? first : last) = loss.item<double>();
    }
    EXPECT_LT(last, first / 2);
    return values_of(model);
  });
  EXPECT_FALSE(got.empty());
}

TEST(DataParallel, ParametersOutliveTheWrapperAndTheCommunicator) {
  std::vector<ParameterRange> kept;
  run_threads(1, [&](Communicator& world) {
    Mlp model;
    kept = data_parallel(model, world).parameters();
  });
  EXPECT_TRUE(kept.at(0).segments()[0].parameter.equal(values_of(Mlp())[0]));
}

TEST(DataParallel, ExposedTimeIsMeasured) {
  constexpr auto kWork = std::chrono::milliseconds(200);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  std::atomic<bool> is_through = false;
  agreed(2, [&](Communicator& world) -> Tensors {
    Mlp model;
    auto parallel = data_parallel(model, world);
    EXPECT_EQ(parallel.last_exposed_communication().count(), 0.0);
    // Rank 0 still has much to compute when rank 1 is done.
    model.first->weight.register_hook([&](const at::Tensor&) {
      if (world.rank() == 1) is_through = true;
      if (world.rank() == 0) {
        while (!is_through && !deadline.expired()) std::this_thread::yield();
        std::this_thread::sleep_for(kWork);
      }
    });
    const at::Tensor loss = loss_of(parallel(numbers(1, {12, 4})));
    const auto start = std::chrono::steady_clock::now();
    loss.backward();
    const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - start;
    const auto exposed = parallel.last_exposed_communication();
    EXPECT_GT(exposed.count(), 0.0);
    if (world.rank() == 0) {
      EXPECT_LE(exposed, whole - kWork) << "its own work is not waiting";
    } else {
      EXPECT_GE(exposed, kWork / 4);
      EXPECT_LE(exposed, whole);
    }
    return {torch::ones(1)};
  });
}

}  // namespace
}  // namespace reigen::parallel::data_parallel_test
