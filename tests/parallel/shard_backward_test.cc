// Backwards that are not one over all weights, with weights and gradients that ranks divide: what ranks with all of
// them get.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <tuple>

#include "parallel/divided_training.h"

namespace reigen::parallel {
namespace {

using namespace testing_divided;  // NOLINT: the vocabulary of these tests

struct Part : torch::nn::Module {
  Part() {
    linear = register_module("linear", torch::nn::Linear(torch::nn::LinearOptions(33, 33).bias(false)));
    extra = register_parameter("extra", torch::ones({33}, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = torch::tanh(linear(x));
    if (stops) return torch::matmul(x, linear->weight.detach().t()) + linear(x.detach());
    return leaves_out ? y : y * extra;
  }
  torch::nn::Linear linear{nullptr};
  at::Tensor extra;
  bool leaves_out = false;  // its weight `extra`
  bool stops = false;       // reads its weight once more without a graph, when all its gradients are there
};

// Units, and weights in front of and behind them that are of none.
struct Chain : torch::nn::Module {
  Chain() {
    first = register_module("first", torch::nn::Linear(33, 33));
    for (int i = 0; i < 4; ++i) {
      parts.push_back(register_module("part" + std::to_string(i), std::make_shared<Part>()));
      list.emplace_back("part" + std::to_string(i), parts.back());
    }
    other = register_module("other", torch::nn::Linear(33, 33));
    fill(*this, at::kDouble);
    const at::NoGradGuard no_grad;
    scale = register_parameter("scale", torch::full({33}, 1.25, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = nn::fold(list, first(x));
    if (calls_twice) y = nn::call(list[1], nn::call(list[2], y));
    return (reaches_other ? y + other(x) : y) * scale;
  }
  std::vector<nn::Unit> units() const { return list; }

  std::vector<std::shared_ptr<Part>> parts;
  std::vector<nn::Unit> list;
  torch::nn::Linear first{nullptr}, other{nullptr};
  at::Tensor scale;
  bool reaches_other = false;
  bool calls_twice = false;
};

struct Training {
  Communicator& world;
  Chain& model;
  DataParallel<Chain>& parallel;
  optim::SGD& optimizer;

  at::Tensor loss(std::uint64_t seed) { return parallel(input_of(seed, world)).square().mean(); }
  void step() {
    optimizer.step();
    optimizer.zero_grad();
  }
};

class UnusualBackward : public testing::TestWithParam<std::tuple<const char*, Shard, bool>> {
 protected:
  using Body = std::function<void(Training)>;

  static Tensors run(const char* backend, Shard shard, bool recomputes, const Body& body) {
    return agreed_over(backend, 2, [&](Communicator& world) {
      Chain model;
      std::optional<nn::ActivationCheckpoint> checkpoint;
      if (recomputes) checkpoint.emplace(nn::activation_checkpoint(model.units()));
      // A unit that is computed again gives a gradient for each of its calls.
      const bool waits = recomputes && !(shard == Shard::kParameters && backend == std::string("tcp"));
      auto parallel = data_parallel(model, world, {.overlap = !waits, .shard = shard});
      optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
      body({world, model, parallel, optimizer});
      parallel.gather_weights();
      return values_of(model);
    });
  }
  bool recomputes() const { return std::get<2>(GetParam()); }
  // Gradients that stay are dropped before the next backward (docs/sharding.md).
  bool adds_up() const {
    return std::get<0>(GetParam()) == std::string("tcp") || std::get<1>(GetParam()) == Shard::kParameters;
  }
  void expect_as_with_all(const Body& body) const {
    const auto [backend, shard, recomputes] = GetParam();
    const Tensors expected = run(backend, Shard::kNone, recomputes, body);
    EXPECT_LT(distance(run(backend, shard, recomputes, body), expected), 1e-14);
    EXPECT_GT(distance(expected, run(backend, Shard::kNone, recomputes, [](Training) {})), 1e-4)
        << "nothing was trained";
  }
};
INSTANTIATE_TEST_SUITE_P(Divided, UnusualBackward,
                         testing::Combine(testing::Values("tcp", "shared_memory"),
                                          testing::Values(Shard::kGradients, Shard::kParameters), testing::Bool()));

TEST_P(UnusualBackward, OneRankAloneReachesAWeightOfAUnit) {
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < 4; ++i) {
        t.model.parts[i]->leaves_out = (i + step) % 2 == static_cast<std::size_t>(t.world.rank());
      }

      t.loss(step).backward();
      t.step();
    }
  });
}

TEST_P(UnusualBackward, OneRankAloneReachesAWeightOfNoUnit) {
  expect_as_with_all([](Training t) {
    t.model.reaches_other = t.world.rank() == 1;
    for (std::uint64_t step = 0; step < 3; ++step) {
      t.loss(step).backward();
      t.step();
    }
  });
}

TEST_P(UnusualBackward, NoRankReachesAWeight) {
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      t.model.parts[2]->leaves_out = step != 1;
      t.loss(step).backward();
      t.step();
    }
  });
}

TEST_P(UnusualBackward, TwoForwardsOneLoss) {
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      const at::Tensor a = t.loss(2 * step);
      (a + t.loss(2 * step + 1)).backward();
      t.step();
    }
  });
}

TEST_P(UnusualBackward, AUnitIsCalledTwice) {
  expect_as_with_all([](Training t) {
    t.model.calls_twice = true;
    for (std::uint64_t step = 0; step < 3; ++step) {
      t.loss(step).backward();
      t.step();
    }
  });
}

TEST_P(UnusualBackward, TwoForwardsTwoBackwards) {
  if (!adds_up()) return;
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      const at::Tensor a = t.loss(2 * step);
      const at::Tensor b = t.loss(2 * step + 1);
      a.backward();
      b.backward();
      t.step();
    }
  });
}

TEST_P(UnusualBackward, TwoBackwardsOverOneGraph) {
  if (!adds_up()) return;
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      const at::Tensor y = t.parallel(input_of(step, t.world));
      y.square().mean().backward({}, /*retain_graph=*/true);
      y.abs().mean().backward();
      t.step();
    }
  });
}

TEST_P(UnusualBackward, AnotherForwardComesBetween) {
  if (!adds_up()) return;
  expect_as_with_all([](Training t) {
    const at::Tensor a = t.loss(1);
    const at::Tensor b = t.loss(2);
    a.backward();
    const at::Tensor c = t.loss(3);
    b.backward();
    c.backward();
    t.step();
  });
}

TEST_P(UnusualBackward, AGradientThatIsAskedForTakesNoneAway) {
  if (recomputes()) return;  // is refused, below
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      t.loss(step).backward();
      const at::Tensor x = input_of(step + 7, t.world).requires_grad_();
      const auto asked =
          torch::autograd::grad({t.parallel(x).square().mean()}, {t.model.parts[1]->linear->weight, x, t.model.scale});
      for (const at::Tensor& gradient : asked) EXPECT_GT(gradient.abs().max().item<double>(), 0);
      t.step();
    }
  });
}

TEST_P(UnusualBackward, OfChosenWeights) {
  if (recomputes()) return;
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      t.loss(step).backward({}, {}, false, {{t.model.parts[1]->linear->weight, t.model.scale}});
      t.step();
    }
  });
}

// Its own unit may read a weight when its gradient is there already.
TEST_P(UnusualBackward, AWeightIsReadWithoutAGraphToo) {
  expect_as_with_all([](Training t) {
    t.model.parts[2]->stops = true;
    for (std::uint64_t step = 0; step < 3; ++step) {
      t.loss(step).backward();
      t.step();
    }
  });
}

TEST_P(UnusualBackward, ComesFirstUnderNoSync) {
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      const at::Tensor y = t.parallel(input_of(step, t.world));
      {
        const auto guard = t.parallel.no_sync();
        y.square().mean().backward({}, /*retain_graph=*/true);
      }
      y.abs().mean().backward();
      t.step();
    }
  });
}

// What was kept, added to without an average, and dropped.
TEST_P(UnusualBackward, KeptAddedToAndDropped) {
  expect_as_with_all([](Training t) {
    t.model.reaches_other = true;
    t.loss(1).backward();
    t.optimizer.step();
    {
      const auto guard = t.parallel.no_sync();
      t.loss(2).backward();
    }
    t.optimizer.zero_grad();
    t.model.reaches_other = t.world.rank() == 1;
    t.loss(3).backward();
    t.step();
  });
}

TEST(UnusualBackwards, WeightsOfUnitsLeaveUnderNoSyncToo) {
  agreed_over("tcp", 2, [&](Communicator& world) -> Tensors {
    Chain model;
    auto parallel = data_parallel(model, world, {.shard = Shard::kParameters});
    const auto there = [&] {
      std::size_t units = 0;
      for (const auto& part : model.parts) {
        if (part->linear->weight.isfinite().all().item<bool>()) ++units;
      }
      return units;
    };
    const auto guard = parallel.no_sync();
    const at::Tensor loss = parallel(input_of(1, world)).square().mean();
    EXPECT_EQ(there(), 1U) << "the last one's backward comes next";
    loss.backward();
    EXPECT_EQ(there(), 1U) << "the first one's forward comes next";
    return {torch::zeros(1)};
  });
}

}  // namespace
}  // namespace reigen::parallel
