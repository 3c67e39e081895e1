// Backwards that are not a single one over all weights, with sharded weights and gradients. The result must equal that
// of ranks that have all of them.
#include <gmock/gmock.h>

#include <chrono>
#include <tuple>

#include "harness/torch.h"
#include "parallel/divided_training.h"

namespace reigen::parallel::shard_backward_test {
namespace {

using namespace testing_divided;  // NOLINT: the vocabulary of these tests

struct Part : torch::nn::Module {
  Part() {
    linear = register_module("linear", torch::nn::Linear(torch::nn::LinearOptions(33, 33).bias(false)));
    extra = register_parameter("extra", torch::ones({33}, at::TensorOptions(at::kDouble).device(here)));
  }
  nn::Carry forward(const nn::Carry& input) {
    if (hands_through) return input;
    const at::Tensor& x = input.front();
    at::Tensor y = torch::tanh(linear(x));
    kept = y;
    if (stops) y = torch::matmul(x, linear->weight.detach().t()) + linear(x.detach());
    if (!leaves_out) y = y * extra;
    if (input.size() == 1) return {y};
    return {adds_second ? y + input[1] : y, input[1]};
  }
  torch::nn::Linear linear{nullptr};
  at::Tensor extra;
  at::Tensor kept;             // a tensor that it keeps besides its output
  bool leaves_out = false;     // does not use its weight `extra`
  bool stops = false;          // also uses its weight without a graph, after its gradients are complete
  bool adds_second = false;    // adds the second of two tensors
  bool hands_through = false;  // only returns its input
};

// A module of two units.
struct Segment : torch::nn::Module {
  explicit Segment(const std::string& name) {
    for (const char* part : {"part0", "part1"}) {
      parts.push_back(register_module(part, std::make_shared<Part>()));
      list.emplace_back(name + "." + part, parts.back());
    }
  }
  nn::Carry forward(const nn::Carry& input) { return nn::fold(list, input); }
  std::vector<std::shared_ptr<Part>> parts;
  std::vector<nn::Unit> list;
};

// Units within larger units, and weights before and after them that are of no unit.
struct Chain : torch::nn::Module {
  Chain() {
    first = register_module("first", torch::nn::Linear(33, 33));
    for (const char* name : {"segment0", "segment1"}) {
      const auto segment = register_module(name, std::make_shared<Segment>(name));
      segments.emplace_back(name, segment);
      parts.insert(parts.end(), segment->parts.begin(), segment->parts.end());
      list.insert(list.end(), segment->list.begin(), segment->list.end());
    }
    other = register_module("other", torch::nn::Linear(33, 33));
    fill(*this, at::kDouble);
    const at::NoGradGuard no_grad;
    scale = register_parameter("scale", torch::full({33}, 1.25, at::TensorOptions(at::kDouble).device(here)));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& second = {}) {
    nn::Carry carry{first(x)};
    if (second.defined()) carry.push_back(second);
    if (takes_first) carry.push_back(carry.front());
    carry = nn::fold(segments, std::move(carry));
    if (calls_twice) carry = nn::call(list[1], nn::call(list[2], carry));
    const at::Tensor& y = carry.front();
    return (reaches_other ? y + other(x) : y) * scale;
  }
  std::vector<nn::Unit> units() const { return list; }

  std::vector<std::shared_ptr<Part>> parts;
  std::vector<nn::Unit> list;
  std::vector<nn::Unit> segments;
  torch::nn::Linear first{nullptr}, other{nullptr};
  at::Tensor scale;
  bool reaches_other = false;
  bool calls_twice = false;
  bool takes_first = false;  // the output of `first` is the second tensor
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

enum class Again { kNothing, kUnits, kSegments };  // the units that are recomputed in backward

class UnusualBackward : public ::testing::TestWithParam<std::tuple<const char*, Shard, Again>> {
 protected:
  using Body = std::function<void(Training)>;

  static Tensors run(const char* backend, Shard shard, Again again, const Body& body) {
    constexpr int kRanks = 3;
    return agreed_over(backend, kRanks, [&](Communicator& world) {
      Chain model;
      std::optional<nn::ActivationCheckpoint> checkpoint;
      if (again != Again::kNothing) {
        checkpoint.emplace(nn::activation_checkpoint(again == Again::kUnits ? model.list : model.segments));
      }
      // A recomputed unit gives one gradient for each of its calls.
      const bool waits = again != Again::kNothing && !(shard == Shard::kParameters && backend == std::string("tcp"));
      auto parallel = data_parallel(model, world, {.overlap = !waits, .shard = shard});
      optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
      body({world, model, parallel, optimizer});
      parallel.gather_weights();
      return values_of(model);
    });
  }
  bool recomputes() const { return std::get<2>(GetParam()) != Again::kNothing; }
  // False if kept gradients are dropped before the next backward (docs/sharding.md).
  bool adds_up() const {
    return std::get<0>(GetParam()) == std::string("tcp") || std::get<1>(GetParam()) == Shard::kParameters;
  }
  void expect_as_with_all(const Body& body) const {
    const auto [backend, shard, again] = GetParam();
    const Tensors expected = run(backend, Shard::kNone, again, body);
    EXPECT_LT(distance(run(backend, shard, again, body), expected), 1e-14);
    EXPECT_GT(distance(expected, run(backend, Shard::kNone, again, [](Training) {})), 1e-4) << "nothing was trained";
  }
};
INSTANTIATE_TEST_SUITE_P(Divided, UnusualBackward,
                         ::testing::Combine(::testing::Values("tcp", "shared_memory"),
                                            ::testing::Values(Shard::kGradients, Shard::kParameters),
                                            ::testing::Values(Again::kNothing, Again::kUnits, Again::kSegments)));

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
  if (!adds_up()) GTEST_SKIP() << "gradients that stay are dropped before the next backward";
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
  if (!adds_up()) GTEST_SKIP() << "gradients that stay are dropped before the next backward";
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
  if (!adds_up()) GTEST_SKIP() << "gradients that stay are dropped before the next backward";
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
  if (recomputes()) GTEST_SKIP() << "refused: what is computed again adds to all weights";
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
  if (recomputes()) GTEST_SKIP() << "refused: what is computed again adds to all weights";
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      t.loss(step).backward({}, {}, false, {{t.model.parts[1]->linear->weight, t.model.scale}});
      t.step();
    }
  });
}

// A unit may read its own weight after the gradient of that weight is complete.
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

// Gradients are kept, added to without an average, and dropped.
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

// The gradient of the leaf is complete in the middle of the call that used it last, and not at the end of a call.
TEST_P(UnusualBackward, ALeafIsHandedThrough) {
  for (const std::size_t user : {1U, 3U}) {
    expect_as_with_all([user](Training t) {
      t.model.parts[user]->adds_second = true;
      for (std::uint64_t step = 0; step < 3; ++step) {
        const at::Tensor leaf = input_of(step + 7, t.world).requires_grad_();
        t.parallel(input_of(step, t.world), leaf).square().mean().backward();
        t.step();
      }
    });
  }
}

TEST_P(UnusualBackward, ALeafIsHandedThroughWhereLittleIsTrained) {
  expect_as_with_all([](Training t) {
    for (std::size_t i = 1; i < 4; ++i) {
      for (const at::Tensor& parameter : t.model.parts[i]->parameters()) parameter.set_requires_grad(false);
    }
    t.model.parts[3]->adds_second = true;
    for (std::uint64_t step = 0; step < 3; ++step) {
      {
        const auto guard = t.parallel.no_sync();
        const at::Tensor leaf = input_of(step + 7, t.world).requires_grad_();
        t.parallel(input_of(step, t.world), leaf).square().mean().backward();
      }
      t.parallel(input_of(step + 3, t.world), input_of(step + 8, t.world)).square().mean().backward();
      t.step();
    }
  });
}

TEST_P(UnusualBackward, WhatCameBeforeIsHandedThroughAndUsedByAll) {
  expect_as_with_all([](Training t) {
    t.model.takes_first = true;
    for (const auto& part : t.model.parts) part->adds_second = true;
    for (std::uint64_t step = 0; step < 3; ++step) {
      t.loss(step).backward();
      t.step();
    }
  });
}

TEST_P(UnusualBackward, OneRankHandsItsInputThroughSomeUnits) {
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      for (const std::size_t i : {1U, 2U}) t.model.parts[i]->hands_through = t.world.rank() == 1 && step != 1;
      t.loss(step).backward();
      t.step();
    }
  });
}

TEST_P(UnusualBackward, AForwardWithoutGradientsRunsWithinIt) {
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      t.parallel.prepare_forward();
      nn::Carry carry{input_of(step, t.world).requires_grad_()};
      for (const std::size_t i : {0U, 1U}) carry = nn::call(t.model.segments[i], carry);
      carry.front().register_hook([&](const at::Tensor&) {
        const at::NoGradGuard no_grad;
        EXPECT_TRUE(t.model.forward(input_of(9, t.world)).isfinite().all().item<bool>());
      });
      carry.front().square().mean().backward();
      t.step();
    }
  });
}

TEST(UnusualBackwards, OfGradientsAreRefusedWhereWeightsComeAndGo) {
  agreed_over("tcp", 2, [](Communicator& world) -> Tensors {
    Chain model;
    auto parallel = data_parallel(model, world, {.shard = Shard::kParameters});
    const at::Tensor x = input_of(1, world).requires_grad_();
    const at::Tensor loss = parallel(x).square().mean();
    try {
      torch::autograd::grad({loss}, {x}, {}, {}, /*create_graph=*/true);
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("create_graph"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("segment1.part1"));
    }
    return {torch::zeros(1)};
  });
}

TEST_P(UnusualBackward, AnotherForwardSharesItWhoseGradientWasAskedFor) {
  if (recomputes()) GTEST_SKIP() << "refused: what is computed again adds to all weights";
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      const at::Tensor x = input_of(step, t.world).requires_grad_();
      const at::Tensor loss = t.parallel(x).square().mean();
      const at::Tensor gradient = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true).front();
      (loss + t.parallel(x.detach() + 0.1 * gradient.sign()).square().mean()).backward();
      t.step();
    }
  });
}

// The outputs are written after the call. This is allowed, because they belong to the call.
TEST_P(UnusualBackward, OutputsMayBeWrittenTo) {
  expect_as_with_all([](Training t) {
    for (std::uint64_t step = 0; step < 3; ++step) {
      t.parallel.prepare_forward();
      nn::Carry carry{t.model.first(input_of(step, t.world))};
      for (const nn::Unit& segment : t.model.segments) {
        carry = nn::call(segment, carry);
        carry.front().mul_(2).add_(carry.front().detach());
      }
      (carry.front() * t.model.scale).square().mean().backward();
      t.step();
    }
  });
}

TEST(UnusualBackwards, WhatOthersHoldTooMayNotBeWrittenTo) {
  agreed_over("tcp", 2, [](Communicator& world) -> Tensors {
    Chain model;
    auto parallel = data_parallel(model, world, {.shard = Shard::kParameters});
    parallel.prepare_forward();
    model.parts[1]->hands_through = true;
    const at::Tensor x = model.first(input_of(1, world));
    const at::Tensor leaf = input_of(2, world).requires_grad_();
    const auto expect_refusal = [](at::Tensor tensor) {
      try {
        tensor.mul_(2);
        ADD_FAILURE() << "no error";
      } catch (const c10::Error& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("inplace"));
      }
    };
    expect_refusal(nn::call(model.list[1], nn::Carry{x}).front());
    expect_refusal(nn::call(model.list[1], nn::Carry{x.view({-1})}).front());
    expect_refusal(nn::call(model.list[1], nn::Carry{leaf}).front());
    expect_refusal(nn::call(model.list[0], nn::Carry{x, leaf})[1]);
    nn::call(model.list[0], nn::Carry{x}).front().mul_(2);
    return {torch::zeros(1)};
  });
}

TEST(UnusualBackwards, PastWhatUnitsReturnAreRefused) {
  agreed_over("tcp", 2, [](Communicator& world) -> Tensors {
    Chain model;
    auto parallel = data_parallel(model, world, {.shard = Shard::kParameters});
    const auto loss_of_kept = [&] {
      const at::Tensor output = parallel(input_of(1, world));
      return std::pair(output.square().mean(), model.parts[1]->kept.square().mean());
    };
    try {
      loss_of_kept().second.backward();
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("segment0.part1"));
      EXPECT_THAT(error.what(), ::testing::HasSubstr("got a gradient while its weights were away"));
    }
    const auto [main, auxiliary] = loss_of_kept();
    (main + auxiliary).backward();  // this backward comes through the outputs
    return {torch::zeros(1)};
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
    const auto loss = [&](std::uint64_t seed) { return parallel(input_of(seed, world)).square().mean(); };
    const at::Tensor one = loss(1);
    EXPECT_EQ(there(), 1U) << "the last one's backward comes next";
    one.backward();
    EXPECT_EQ(there(), 1U) << "the first one's forward comes next";
    const at::Tensor first = loss(2);
    const at::Tensor second = loss(3);
    second.backward();
    EXPECT_EQ(there(), 1U);
    first.backward();
    EXPECT_EQ(there(), 1U);
    const at::Tensor x = input_of(4, world).requires_grad_();
    torch::autograd::grad({parallel(x).square().mean()}, {x});
    EXPECT_EQ(there(), 1U);
    return {torch::zeros(1)};
  });
}

}  // namespace
}  // namespace reigen::parallel::shard_backward_test
