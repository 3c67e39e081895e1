// Shard::kGradients with parameters so large that backward makes their gradients in the place where all ranks read
// them. The bits must equal those of ranks with their own weights, whatever else a program does with gradients.
#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <stdexcept>

#include "harness/torch.h"
#include "parallel/oracle.h"
#include "reigen/optim/clip.h"
#include "reigen/optim/lamb.h"
#include "tensor/flat/gradient_rows.h"

namespace reigen::parallel::spare_gradients_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests

constexpr std::int64_t kWidth = 256;  // 256 KiB a weight: the smallest size that gets a block

// Three weights of one size, one of another, one that is used twice, and inputs as large as the weights.
struct Large : torch::nn::Module {
  Large() {
    for (int i = 0; i < 3; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(kWidth, kWidth)));
    }
    twice = register_module("twice", torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)));
    wide = register_module("wide", torch::nn::Linear(kWidth, 2 * kWidth));
    unused = register_module("unused", torch::nn::Linear(kWidth, kWidth));
    fill(*this, at::kFloat);
  }
  at::Tensor forward(at::Tensor x, bool skips_last = false) {
    for (std::size_t i = 0; i + (skips_last ? 1 : 0) < layers.size(); ++i) x = torch::tanh(layers[i](x));
    hidden = x;
    return wide(torch::tanh(twice(torch::tanh(twice(x)))));
  }
  std::vector<torch::nn::Linear> layers;
  torch::nn::Linear twice{nullptr}, wide{nullptr}, unused{nullptr};
  at::Tensor hidden;
};

at::Tensor input_of(std::uint64_t step, const Communicator& world, std::int64_t samples) {
  return share(numbers(step, {samples * world.size(), kWidth}), world).to(at::kFloat);
}

using Step = std::function<void(DataParallel<Large>&, Large&, optim::Optimizer&, std::uint64_t, const Communicator&)>;

Tensors train(Communicator& world, Shard shard, Step step) {  // `step` is a copy, because ranks are threads
  Large model;
  auto parallel = data_parallel(model, world, {.shard = shard});
  optim::LAMB optimizer(parallel.parameters(), {.lr = 0.01});
  for (std::uint64_t i = 0; i < 6; ++i) step(parallel, model, optimizer, i, world);
  return values_of(model);
}

void expect_the_bits_of_own(int ranks, const Step& step) {
  const auto run = [&](Shard shard) {
    return agreed(ranks, [&](Communicator& world) { return train(world, shard, step); });
  };
  const Tensors own = run(Shard::kNone);
  const Tensors shared = run(Shard::kGradients);
  EXPECT_TRUE(same_bits(own, shared)) << "differ by " << distance(own, shared);
}

void plain_step(DataParallel<Large>& parallel, optim::Optimizer& optimizer, std::uint64_t step,
                const Communicator& world, std::int64_t samples = 3) {
  parallel(input_of(step, world, samples)).square().mean().backward();
  optimizer.step();
  optimizer.zero_grad();
}

TEST(SpareGradients, AreMadeInPlaceAndGiveTheSameBits) {
  const auto step = [](auto& parallel, auto&, auto& optimizer, auto i, auto& world) {
    plain_step(parallel, optimizer, i, world);
  };
  expect_the_bits_of_own(2, step);
  expect_the_bits_of_own(3, step);
  on_ranks(2, [](Communicator& world) -> Tensors {
    Large model;
    auto parallel = data_parallel(model, world, {.shard = Shard::kGradients});
    parallel(input_of(0, world, 3)).square().mean().backward();
    std::vector<std::string> moved;
    for (const ParameterRange& range : parallel.parameters()) {
      for (std::size_t i = 0; i < range.size(); ++i) {
        const tensor::Segment& segment = range.segments()[i];
        if (range.rows()->place_of(range.gradient_slot(i)) != segment.offset) moved.push_back(segment.name);
      }
    }
    EXPECT_THAT(moved, ::testing::IsSupersetOf({"layer0.weight", "layer1.weight", "layer2.weight", "wide.weight"}))
        << "nothing was copied";
    return {torch::zeros(1)};
  });
}

TEST(SpareGradients, SurviveNormsClippingAndGradientsOfOnesOwn) {
  expect_the_bits_of_own(3, [](auto& parallel, auto& model, auto& optimizer, auto i, auto& world) {
    parallel(input_of(i, world, 3)).square().mean().backward();
    if (i == 1) optim::clip_grad_norm(parallel.parameters(), 0.01);
    if (i == 2) optim::clip_grad_value(parallel.parameters(), 1e-4);
    if (i == 3) {
      for (auto& layer : model.layers) layer->weight.mutable_grad() = layer->weight.grad() * 2;
    }
    if (i == 4) model.layers[0]->weight.mutable_grad() = model.layers[0]->weight.grad().t().clone().t();
    optimizer.step();
    if (i == 3) optimizer.step();
    optimizer.zero_grad();
  });
}

TEST(SpareGradients, AddUpAndAreZeroed) {
  expect_the_bits_of_own(2, [](auto& parallel, auto& model, auto& optimizer, auto i, auto& world) {
    {
      const auto guard = parallel.no_sync();
      parallel(input_of(100 + i, world, 3)).square().mean().backward();
    }
    parallel(input_of(i, world, 3)).square().mean().backward();
    optimizer.step();
    if (i % 2 == 0) {
      model.zero_grad(/*set_to_none=*/false);
    } else {
      model.zero_grad();
    }
  });
}

// The norm is asked for while gradients add up, after a step that averaged nothing in place.
TEST(SpareGradients, HaveANormOfTheirOwnBetweenTwoMicrobatches) {
  expect_the_bits_of_own(2, [](auto& parallel, auto&, auto&, auto i, auto& world) {
    static thread_local std::unique_ptr<optim::SGD> optimizer;  // not LAMB, which averages in place
    if (i == 0) optimizer = std::make_unique<optim::SGD>(parallel.parameters(), optim::SGDOptions{.lr = 0.1});
    {
      const auto guard = parallel.no_sync();
      parallel(input_of(100 + i, world, 3)).square().mean().backward();
      if (parallel.shard() == Shard::kGradients) optim::gradient_norm(parallel.parameters());
    }
    parallel(input_of(i, world, 3)).square().mean().backward();
    optimizer->step();
    optimizer->zero_grad();
    if (i == 5) optimizer.reset();
  });
}

// The gradient is made by hand, in a block that is still lent.
TEST(SpareGradients, MayBeAssignedAfterBackward) {
  expect_the_bits_of_own(2, [](auto& parallel, auto& model, auto& optimizer, auto i, auto& world) {
    const at::Tensor output = parallel(input_of(i, world, 3));
    at::Tensor weight = model.layers[1]->weight;
    at::Tensor own = torch::autograd::grad({output.abs().mean()}, {weight}, {}, /*retain_graph=*/true)[0];
    output.square().mean().backward();
    own.zero_().add_(weight.grad());
    weight.mutable_grad() = own;
    own.reset();
    optimizer.step();
    optimizer.zero_grad();
  });
}

struct Keeper : torch::autograd::PostAccumulateGradHook {
  explicit Keeper(at::Tensor& place) : kept(place) {}
  void operator()(const torch::autograd::Variable& parameter) override { kept = parameter.grad(); }
  at::Tensor& kept;
};

TEST(SpareGradients, ThatAUsersHookKeepsStayAsTheyWere) {
  on_ranks(2, [](Communicator& world) -> Tensors {
    Large model;
    at::Tensor kept;
    torch::autograd::impl::set_post_acc_grad_hooks(model.layers[1]->weight, std::make_unique<Keeper>(kept));
    auto parallel = data_parallel(model, world, {.shard = Shard::kGradients});
    optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
    Tensors all;
    Tensors copies;
    for (std::uint64_t i = 0; i < 4; ++i) {
      parallel(input_of(i, world, 3)).square().mean().backward();
      all.push_back(kept);
      copies.push_back(kept.clone());
      optim::clip_grad_norm(parallel.parameters(), 1e-3);
      optimizer.step();
      optimizer.zero_grad();
      EXPECT_TRUE(same_bits(all, copies)) << i;
    }
    return {torch::zeros(1)};
  });
}

TEST(SpareGradients, AreRightAfterABackwardThatFailed) {
  expect_the_bits_of_own(2, [](auto& parallel, auto& model, auto& optimizer, auto i, auto& world) {
    if (i == 2) {
      const at::Tensor output = parallel(input_of(50, world, 3));
      model.hidden.register_hook([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("planned"); });
      EXPECT_THROW(output.square().mean().backward(), std::exception);
      optimizer.zero_grad();
    }
    plain_step(parallel, optimizer, i, world);
  });
}

TEST(SpareGradients, AreAveragedBySeveralThreads) {
  expect_the_bits_of_own(2, [](auto& parallel, auto&, auto& optimizer, auto i, auto& world) {
    at::set_num_threads(2);
    plain_step(parallel, optimizer, i, world);
    at::set_num_threads(1);
  });
}

// Rows are larger than most last-level caches, and gradients are copied to them.
TEST(SpareGradients, ThatAreCopiedPastTheCachesArriveWhole) {
  const auto run = [](Shard shard) {
    return agreed(2, [&](Communicator& world) {
      torch::nn::Linear model(1500, 3001);
      fill(*model, at::kFloat);
      auto parallel = data_parallel(model, world, {.shard = shard});
      optim::SGD optimizer(parallel.parameters(), {.lr = 0.1});
      for (std::uint64_t i = 0; i < 2; ++i) {
        parallel(share(numbers(i, {4, 1500}), world).to(at::kFloat)).square().mean().backward();
        model->weight.mutable_grad() = model->weight.grad() * 2;
        optimizer.step();
        optimizer.zero_grad();
      }
      return values_of(*model);
    });
  };
  EXPECT_TRUE(same_bits(run(Shard::kNone), run(Shard::kGradients)));
}

// Gradients of activations are as large as those of weights, and are kept.
TEST(SpareGradients, LeaveWhatElseIsMadeInBlocksAlone) {
  for (const bool keeps : {false, true}) {
    expect_the_bits_of_own(2, [&, kept = Tensors(), copies = Tensors()](auto& parallel, auto& model, auto& optimizer,
                                                                        auto i, auto& world) mutable {
      const at::Tensor output = parallel(input_of(i, world, kWidth));
      if (keeps) model.hidden.retain_grad();
      output.square().mean().backward();
      if (keeps) {
        kept.push_back(model.hidden.grad());
        copies.push_back(model.hidden.grad().clone());
      }
      optimizer.step();
      optimizer.zero_grad();
      EXPECT_TRUE(same_bits(kept, copies)) << "step " << i;
    });
  }
}

// One parameter is reached on one rank only, one on no rank, and one rank reaches none.
TEST(SpareGradients, OfSomeRanksOnlyCountAsZeroOnOthers) {
  expect_the_bits_of_own(3, [](auto& parallel, auto& model, auto& optimizer, auto i, auto& world) {
    if (i == 4 && world.rank() == 2) {
      parallel.prepare_forward();
      parallel.synchronize();
    } else {
      parallel(input_of(i, world, 3), i % 2 == 1 && world.rank() == 1).square().mean().backward();
    }
    EXPECT_FALSE(model.unused->weight.grad().defined());
    optimizer.step();
    optimizer.zero_grad();
  });
}

TEST(SpareGradients, OfOneModelAreNotThoseOfAnother) {
  const auto run = [](Shard shard) {
    return agreed(2, [&](Communicator& world) {
      Large first;
      Large second;
      torch::nn::Linear plain(kWidth, kWidth);
      fill(*plain, at::kFloat);
      auto one = data_parallel(first, world, {.shard = shard});
      auto other = data_parallel(second, world, {.shard = shard});
      optim::LAMB steps_one(one.parameters(), {.lr = 0.01});
      optim::LAMB steps_other(other.parameters(), {.lr = 0.02});
      for (std::uint64_t i = 0; i < 4; ++i) {
        const at::Tensor input = input_of(i, world, 3);
        const at::Tensor a = one(input);
        const at::Tensor b = other(plain(input));
        (a * b).mean().backward();
        steps_one.step();
        steps_other.step();
        steps_one.zero_grad();
        steps_other.zero_grad();
      }
      Tensors result = values_of(first);
      for (const at::Tensor& value : values_of(second)) result.push_back(value);
      at::Tensor sum = plain->weight.grad().clone();  // this rank's gradient; it is summed so that ranks agree
      world.all_reduce(sum.data_ptr(), sum.data_ptr(), static_cast<std::size_t>(sum.numel()), DataType::kFloat32,
                       ReduceOp::kSum);
      result.push_back(sum);
      return result;
    });
  };
  EXPECT_TRUE(same_bits(run(Shard::kNone), run(Shard::kGradients)));
}

}  // namespace
}  // namespace reigen::parallel::spare_gradients_test
