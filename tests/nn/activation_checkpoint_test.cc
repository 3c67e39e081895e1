#include "reigen/nn/activation_checkpoint.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>

#include "nn/blocks.h"
#include "reigen/base/error.h"

namespace reigen::testing {
namespace {

using nn::activation_checkpoint;
using nn::Carry;
using nn::Layer;
using nn::Unit;
using testing_oracle::agreed;
using testing_oracle::buffers_of;
using testing_oracle::distance;
using testing_oracle::gradients_of;
using testing_oracle::numbers;
using testing_oracle::same_bits;
using testing_oracle::share;
using testing_oracle::Tensors;
using testing_oracle::values_of;

struct Outcome {
  at::Tensor loss;
  at::Tensor input_gradient;
  Tensors gradients;
  Tensors buffers;
  int forwards = 0;
};

// Two backwards of the same model.
Outcome train(const BlocksOptions& options, int every, bool input_wants_gradient = true) {
  Blocks model(options);
  std::optional<nn::ActivationCheckpoint> checkpoint;
  if (every > 0) checkpoint.emplace(activation_checkpoint(model.units(), {.every = every}));
  Outcome outcome;
  at::manual_seed(5);
  for (std::uint64_t step = 10; step < 12; ++step) {
    at::Tensor x = numbers(step, {6, 5}).requires_grad_(input_wants_gradient);
    outcome.loss = model.forward(x).pow(2).mean();
    outcome.loss.backward();
    outcome.input_gradient = x.grad();
  }
  outcome.gradients = gradients_of(model);
  outcome.buffers = buffers_of(model);
  for (const auto& block : model.blocks) outcome.forwards += block->forwards;
  return outcome;
}

class Checkpointed : public ::testing::TestWithParam<int> {};

TEST_P(Checkpointed, GivesTheSameBits) {
  for (const BlocksOptions& options :
       {BlocksOptions{}, BlocksOptions{.dropout = 0.5}, BlocksOptions{.dropout = 0.3, .normalised = true}}) {
    const Outcome plain = train(options, 0);
    const Outcome again = train(options, GetParam());
    EXPECT_TRUE(plain.loss.equal(again.loss));
    EXPECT_TRUE(plain.input_gradient.equal(again.input_gradient));
    EXPECT_TRUE(same_bits(plain.gradients, again.gradients));
    EXPECT_TRUE(same_bits(plain.buffers, again.buffers));  // batch statistics count a batch once
    EXPECT_EQ(plain.forwards, 2 * options.depth);
    EXPECT_EQ(again.forwards, 2 * (options.depth + options.depth / GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Checkpointed, ::testing::Values(1, 2, 3));

TEST(ActivationCheckpoint, TheFirstUnitNeedsNoGradientOfItsInput) {
  EXPECT_TRUE(same_bits(train({}, 0, false).gradients, train({}, 1, false).gradients));
}

std::size_t nodes_of(const at::Tensor& end) {
  std::vector<torch::autograd::Node*> todo = {end.grad_fn().get()};
  std::set<torch::autograd::Node*> nodes;
  while (!todo.empty()) {
    torch::autograd::Node* node = todo.back();
    todo.pop_back();
    if (node == nullptr || !nodes.insert(node).second) continue;
    for (const auto& edge : node->next_edges()) todo.push_back(edge.function.get());
  }
  return nodes.size();
}

// What a forward saves lies in the nodes of its graph.
TEST(ActivationCheckpoint, KeepsANodeAUnit) {
  Blocks model({.depth = 4});
  const at::Tensor x = numbers(1, {6, 5});
  EXPECT_GT(nodes_of(model.forward(x)), 20U);
  const auto checkpoint = activation_checkpoint(model.units());
  EXPECT_EQ(nodes_of(model.forward(x)), 4U);
}

TEST(ActivationCheckpoint, NestsAndPassesTensorsThrough) {
  const auto train_nested = [](bool inner, bool outer) {
    Blocks model;
    const Unit whole("whole", std::make_shared<Blocks>(), [&](const Carry& carry) {
      return Carry{nn::fold(model.list, carry[0]), carry[1], carry[1].sum().to(at::kLong)};
    });
    std::optional<nn::ActivationCheckpoint> a, b;
    if (inner) a.emplace(activation_checkpoint(model.units()));
    if (outer) b.emplace(activation_checkpoint({whole}));
    at::Tensor x = numbers(1, {6, 5}).requires_grad_();
    at::Tensor y = numbers(2, {2}).requires_grad_();
    const Carry end = nn::call(whole, {x, y});
    (end[0].sum() + 3 * end[1].sum()).backward();
    Tensors result = gradients_of(model);
    result.push_back(x.grad());
    result.push_back(y.grad());
    result.push_back(end[2]);
    return result;
  };
  const Tensors plain = train_nested(false, false);
  EXPECT_TRUE(same_bits(plain, train_nested(true, false)));
  EXPECT_TRUE(same_bits(plain, train_nested(false, true)));
  EXPECT_TRUE(same_bits(plain, train_nested(true, true)));
}

TEST(ActivationCheckpoint, RunsUnderTheFirstForwardsAutocast) {
  const auto types = [](bool enabled) {
    Blocks model;
    std::vector<at::ScalarType> seen;
    for (auto& unit : model.list) {
      unit.attach(Layer::kPrecision, [&](const Carry& input, const Unit::Forward& inner) {
        seen.push_back(at::autocast::is_autocast_enabled(at::kCPU) ? at::autocast::get_autocast_dtype(at::kCPU)
                                                                   : at::kDouble);
        return inner(input);
      });
    }
    const auto checkpoint = activation_checkpoint(model.units());
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    const at::Tensor loss = model.forward(numbers(1, {6, 5})).sum();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    loss.backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    return seen;
  };
  EXPECT_EQ(types(false), std::vector<at::ScalarType>(6, at::kDouble));
  EXPECT_EQ(types(true), std::vector<at::ScalarType>(6, at::kBFloat16));
}

TEST(ActivationCheckpoint, WithoutGradientsNothingIsKept) {
  Blocks model;
  const auto checkpoint = activation_checkpoint(model.units());
  {
    at::NoGradGuard no_grad;
    EXPECT_FALSE(model.forward(numbers(1, {6, 5})).requires_grad());
  }
  for (at::Tensor& parameter : model.parameters()) parameter.requires_grad_(false);
  EXPECT_FALSE(model.forward(numbers(1, {6, 5})).requires_grad());
}

TEST(ActivationCheckpoint, ASecondBackwardNeedsAKeptGraph) {
  Blocks model;
  const auto checkpoint = activation_checkpoint(model.units());
  at::Tensor loss = model.forward(numbers(1, {6, 5})).sum();
  loss.backward({}, /*retain_graph=*/true);
  const Tensors once = gradients_of(model);
  loss.backward();
  const Tensors twice = gradients_of(model);
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_TRUE((once[i] * 2).equal(twice[i]));
  EXPECT_THROW(loss.backward(), std::exception);
}

TEST(ActivationCheckpoint, AnOutputThatIsChangedOrAForwardThatDiffersIsSaid) {
  Blocks model;
  bool first = true;
  model.list[1].attach(Layer::kPrecision, [&](const Carry& input, const Unit::Forward& inner) {
    Carry output = inner(input);
    if (!std::exchange(first, false)) output.push_back(output[0]);
    return output;
  });
  const auto checkpoint = activation_checkpoint(model.units());
  at::Tensor loss = model.forward(numbers(1, {6, 5})).sum();
  try {
    loss.backward();
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the second forward gave 2 tensors, the first 1"));
  }
}

TEST(ActivationCheckpoint, BadOptionsAndSecondOnesAreRefused) {
  Blocks model;
  EXPECT_THROW(static_cast<void>(activation_checkpoint(model.units(), {.every = 0})), InvalidArgument);
  {
    const auto checkpoint = activation_checkpoint(model.units(), {.every = 2});
    EXPECT_THROW(static_cast<void>(activation_checkpoint(model.units())), InvalidArgument);
    EXPECT_FALSE(model.units()[0].has(Layer::kRecompute));
  }
  EXPECT_FALSE(model.units()[1].has(Layer::kRecompute));
}

// Gradients of a parameter arrive, and travel, once.
class CheckpointedDataParallel : public ::testing::TestWithParam<bool> {};

TEST_P(CheckpointedDataParallel, EqualsOneProcess) {
  constexpr int kUpdates = 4;
  const auto run = [&](Communicator& world, bool checkpointed) {
    Blocks model({.depth = 4});
    std::optional<nn::ActivationCheckpoint> checkpoint;
    if (checkpointed) checkpoint.emplace(activation_checkpoint(model.units()));
    auto parallel = data_parallel(model, world, {.bucket_mb = 0, .overlap = GetParam()});
    optim::AdamW optimizer(parallel.parameters(), {.lr = 1e-2});
    for (int step = 0; step < kUpdates; ++step) {
      const at::Tensor batch = numbers(static_cast<std::uint64_t>(step), {12, 5});
      parallel(share(batch, world)).pow(2).mean().backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    return values_of(model);
  };
  Communicator alone;
  const Tensors expected = run(alone, false);
  for (const int ranks : {2, 3}) {
    const Tensors plain = agreed(ranks, [&](Communicator& world) { return run(world, false); });
    const Tensors got = agreed(ranks, [&](Communicator& world) { return run(world, true); });
    EXPECT_TRUE(same_bits(plain, got)) << ranks;
    EXPECT_LT(distance(expected, got), 1e-9) << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(Overlap, CheckpointedDataParallel, ::testing::Bool());

}  // namespace
}  // namespace reigen::testing
