#include "reigen/nn/activation_checkpoint.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/library.h>

#include <atomic>

#include "nn/blocks.h"
#include "reigen/base/error.h"
#include "reigen/nn/autocast.h"
#include "reigen/nn/cross_entropy.h"

namespace reigen::testing::activation_checkpoint_test {
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

// Makes two forwards and backwards of the same model.
Outcome train(const BlocksOptions& options, int every, bool input_wants_gradient = true,
              const std::vector<std::string>& keep = {}) {
  Blocks model(options);
  std::optional<nn::ActivationCheckpoint> checkpoint;
  if (every > 0) checkpoint.emplace(activation_checkpoint(model.units(), {.every = every, .keep = keep}));
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
    EXPECT_EQ(plain.forwards, 2 * options.depth);
    for (const auto& keep : {std::vector<std::string>(), nn::products()}) {
      const Outcome again = train(options, GetParam(), true, keep);
      EXPECT_TRUE(plain.loss.equal(again.loss));
      EXPECT_TRUE(plain.input_gradient.equal(again.input_gradient));
      EXPECT_TRUE(same_bits(plain.gradients, again.gradients));
      EXPECT_TRUE(same_bits(plain.buffers, again.buffers));  // running statistics count each batch once
      EXPECT_EQ(again.forwards, 2 * (options.depth + options.depth / GetParam()));
    }
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

// The nodes of a graph hold the tensors that a forward saves, so fewer nodes mean less memory.
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

// cross_entropy writes over logits that a unit has computed, but not over a parameter, a buffer, the input or another
// tensor that the unit only returns.
TEST(ActivationCheckpoint, ALossLeavesWhatAUnitOnlyReturns) {
  struct Tables : torch::nn::Module {
    at::Tensor weight = register_parameter("weight", numbers(1, {4, 6}));
    at::Tensor table = register_buffer("table", numbers(2, {4, 6}));
  };
  const auto tables = std::make_shared<Tables>();
  const at::Tensor x = numbers(3, {4, 6}).requires_grad_().mul(1);
  const at::Tensor other = numbers(4, {4, 6}).requires_grad_().mul(1);
  const auto is_left = [&](const std::function<at::Tensor(const at::Tensor&)>& forward) {
    const Unit unit("returns", tables, [&](const Carry& input) { return Carry{forward(input[0])}; });
    const auto checkpoint = activation_checkpoint({unit});
    const at::Tensor logits = nn::call(unit, Carry{x})[0].flatten(0, -2);
    const at::Tensor before = logits.detach().clone();
    nn::cross_entropy(logits, at::zeros({4}, at::kLong));
    return logits.detach().equal(before);
  };
  EXPECT_FALSE(is_left([](const at::Tensor& input) { return input * 2; }));
  EXPECT_TRUE(is_left([](const at::Tensor& input) { return input; }));
  EXPECT_TRUE(is_left([](const at::Tensor& input) { return input.view({2, 2, 6}); }));
  EXPECT_TRUE(is_left([&](const at::Tensor&) { return tables->weight; }));
  EXPECT_TRUE(is_left([&](const at::Tensor&) { return tables->weight.view({2, 2, 6}); }));
  EXPECT_TRUE(is_left([&](const at::Tensor&) { return tables->table; }));
  EXPECT_TRUE(is_left([&](const at::Tensor&) { return other; }));
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

struct AutocastSettings {
  bool cpu = at::autocast::is_autocast_enabled(at::kCPU);
  bool cuda = at::autocast::is_autocast_enabled(at::kCUDA);
  at::ScalarType cpu_type = at::autocast::get_autocast_dtype(at::kCPU);
  at::ScalarType cuda_type = at::autocast::get_autocast_dtype(at::kCUDA);
  bool operator==(const AutocastSettings&) const = default;
};

// The settings are only flags, so those of CUDA need no CUDA device.
TEST(ActivationCheckpoint, RunsUnderTheFirstForwardsAutocastOfEveryDevice) {
  const AutocastSettings none;
  for (const auto device : {at::kCPU, at::kCUDA}) {
    for (const auto type : {at::kHalf, at::kBFloat16}) {
      for (const bool in_forward : {true, false}) {
        Blocks model;
        std::vector<AutocastSettings> seen;
        for (auto& unit : model.list) {
          unit.attach(Layer::kPrecision, [&](const Carry& input, const Unit::Forward& inner) {
            seen.emplace_back();
            return inner(input);
          });
        }
        const auto checkpoint = activation_checkpoint(model.units());
        AutocastSettings first;
        AutocastSettings within_backward;
        at::Tensor loss;
        {
          std::optional<nn::Autocast> autocast;
          if (in_forward) autocast.emplace(type, device);
          first = {};
          loss = model.forward(numbers(1, {6, 5})).sum();
        }
        {
          std::optional<nn::Autocast> autocast;
          if (!in_forward) autocast.emplace(type, device);
          within_backward = {};
          loss.backward();
          EXPECT_EQ(AutocastSettings(), within_backward);
        }
        EXPECT_FALSE(first == within_backward);
        EXPECT_TRUE(seen == std::vector<AutocastSettings>(6, first)) << device << type << in_forward;
        EXPECT_TRUE(AutocastSettings() == none);
      }
    }
  }
}

// An operation of the test, whose kernel counts its calls.
std::atomic<int> kernels{0};
at::Tensor counted(const at::Tensor& x) {
  ++kernels;
  return x * 2;
}
at::Tensor call_counted(const at::Tensor& x) {
  static const auto operation =
      c10::Dispatcher::singleton().findSchemaOrThrow("reigen_test::counted", "").typed<at::Tensor(const at::Tensor&)>();
  return operation.call(x);
}
struct CountedFunction : torch::autograd::Function<CountedFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return call_counted(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * 2};
  }
};
at::Tensor counted_with_gradient(const at::Tensor& x) { return CountedFunction::apply(x); }
TORCH_LIBRARY(reigen_test, library) { library.def("counted(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(reigen_test, CPU, library) { library.impl("counted", counted); }
TORCH_LIBRARY_IMPL(reigen_test, Autograd, library) { library.impl("counted", counted_with_gradient); }

// x -> tanh(2 tanh(x)). `change` may modify the output of the counted operation.
Unit counted_unit(const std::function<void(at::Tensor&)>& change = {}) {
  return Unit("counted", std::make_shared<torch::nn::IdentityImpl>(), [change](const Carry& input) {
    at::Tensor doubled = call_counted(input[0].tanh());
    if (change) change(doubled);
    return Carry{doubled.tanh()};
  });
}

TEST(SelectiveCheckpoint, KeptOperationsRunOnce) {
  for (const bool keeps : {false, true}) {
    const Unit unit = counted_unit();
    const auto checkpoint = activation_checkpoint(
        {unit}, {.keep = keeps ? std::vector<std::string>{"reigen_test::counted"} : std::vector<std::string>{}});
    at::Tensor x = numbers(1, {5}).requires_grad_();
    kernels = 0;
    nn::call(unit, Carry{x})[0].sum().backward();
    EXPECT_EQ(kernels, keeps ? 1 : 2);
    at::Tensor y = numbers(1, {5}).requires_grad_();
    call_counted(y.tanh()).tanh().sum().backward();
    EXPECT_TRUE(x.grad().equal(y.grad()));
  }
}

TEST(SelectiveCheckpoint, ASecondBackwardTakesThemAgain) {
  const Unit unit = counted_unit();
  const auto checkpoint = activation_checkpoint({unit}, {.keep = {"reigen_test::counted"}});
  at::Tensor x = numbers(1, {5}).requires_grad_();
  kernels = 0;
  const at::Tensor end = nn::call(unit, Carry{x})[0].sum();
  end.backward({}, /*retain_graph=*/true);
  const at::Tensor once = x.grad().clone();
  end.backward();
  EXPECT_TRUE((once * 2).equal(x.grad()));
  EXPECT_EQ(kernels, 1);
}

// The kept values are those before the write, in the first and in the second forward.
TEST(SelectiveCheckpoint, OutputsMayBeWrittenToWithinTheUnit) {
  const Unit unit = counted_unit([](at::Tensor& doubled) { doubled.add_(1); });
  const auto checkpoint = activation_checkpoint({unit}, {.keep = {"reigen_test::counted"}});
  at::Tensor x = numbers(1, {5}).requires_grad_();
  const at::Tensor end = nn::call(unit, Carry{x})[0].sum();
  end.backward({}, /*retain_graph=*/true);
  end.backward();
  at::Tensor y = numbers(1, {5}).requires_grad_();
  (2 * (call_counted(y.tanh()) + 1).tanh().sum()).backward();
  EXPECT_TRUE(x.grad().equal(y.grad()));
}

// For this input, linear() is a product, a view with a version counter of its own, and an addition in place.
TEST(SelectiveCheckpoint, WritesThroughViewsThatTellNobodyAreSeen) {
  const auto gradient = [](bool checkpointed) {
    auto linear = std::make_shared<torch::nn::LinearImpl>(4, 3);
    linear->to(torch::kDouble);
    testing_oracle::fill(*linear);
    const Unit unit("linear", linear, [linear](const Carry& input) { return Carry{linear->forward(input[0]).tanh()}; });
    std::optional<nn::ActivationCheckpoint> checkpoint;
    if (checkpointed) checkpoint.emplace(activation_checkpoint({unit}, {.keep = nn::products()}));
    const at::Tensor x = numbers(1, {4, 2, 5}).permute({1, 2, 0}).requires_grad_();
    nn::call(unit, Carry{x})[0].square().sum().backward();
    return gradients_of(*linear);
  };
  EXPECT_TRUE(same_bits(gradient(false), gradient(true)));
}

TEST(SelectiveCheckpoint, AUnitsOutputThatChangesIsRefused) {
  const Unit unit("counted", std::make_shared<torch::nn::IdentityImpl>(), [](const Carry& input) {
    return Carry{at::_unsafe_view(call_counted(input[0].tanh()), {5, 1})};
  });
  const auto checkpoint = activation_checkpoint({unit}, {.keep = {"reigen_test::counted"}});
  at::Tensor output = nn::call(unit, Carry{numbers(1, {5}).requires_grad_()})[0];
  output.add_(1);
  try {
    output.sum().backward();
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("an output of reigen_test::counted that was kept has been written"));
  }
}

// The kept operation draws random numbers. Later operations must draw the same numbers in both forwards.
TEST(SelectiveCheckpoint, OperationsThatDrawMayBeKept) {
  const auto gradient = [](const std::vector<std::string>& keep) {
    const Unit unit("drops", std::make_shared<torch::nn::IdentityImpl>(), [](const Carry& input) {
      return Carry{at::dropout(std::get<0>(at::native_dropout(input[0], 0.5, true)).tanh(), 0.5, true)};
    });
    std::optional<nn::ActivationCheckpoint> checkpoint;
    checkpoint.emplace(activation_checkpoint({unit}, {.keep = keep}));
    at::manual_seed(3);
    at::Tensor x = numbers(1, {64}).requires_grad_();
    nn::call(unit, Carry{x})[0].sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(gradient({}).equal(gradient({"aten::native_dropout"})));
}

TEST(SelectiveCheckpoint, UnitsWithinUnitsDoNotBothKeep) {
  for (const bool inner_keeps : {false, true}) {
    Blocks model;
    const Unit whole("whole", std::make_shared<torch::nn::IdentityImpl>(),
                     [&](const Carry& carry) { return Carry{nn::fold(model.list, carry[0])}; });
    const std::vector<std::string> keep = inner_keeps ? nn::products() : std::vector<std::string>();
    const auto inner = activation_checkpoint(model.units(), {.keep = keep});
    const auto outer = activation_checkpoint({whole}, {.keep = nn::products()});
    at::Tensor x = numbers(1, {6, 5}).requires_grad_();
    const at::Tensor end = nn::call(whole, Carry{x})[0].sum();
    if (inner_keeps) {
      EXPECT_THROW(end.backward(), InvalidArgument);
      continue;
    }
    end.backward();
    Blocks plain;
    at::Tensor y = numbers(1, {6, 5}).requires_grad_();
    plain.forward(y).sum().backward();
    EXPECT_TRUE(x.grad().equal(y.grad()));
    EXPECT_TRUE(same_bits(gradients_of(model), gradients_of(plain)));
  }
}

TEST(SelectiveCheckpoint, NamesThatAreNoneAreRefused) {
  for (const char* name : {"aten::no_such", "mm", "", "aten::add_", "aten::view", "aten::relu_", "aten::linear",
                           "aten::matmul", "aten::split"}) {
    Blocks model;
    try {
      static_cast<void>(activation_checkpoint(model.units(), {.keep = {name}}));
      FAIL() << name;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("no operation whose outputs can be kept")) << name;
    }
    EXPECT_FALSE(model.units()[0].has(Layer::kRecompute));
  }
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

TEST(ActivationCheckpoint, GradientsThatAreAskedForAreRefused) {
  Blocks model;
  const auto checkpoint = activation_checkpoint(model.units());
  const at::Tensor x = numbers(1, {6, 5}).requires_grad_();
  const at::Tensor loss = model.forward(x).sum();
  const auto expect_refusal = [](const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("a backward() of chosen inputs"));
    }
  };
  expect_refusal([&] { torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true); });
  expect_refusal([&] { loss.backward({}, /*retain_graph=*/true, false, {{x}}); });
  for (const at::Tensor& parameter : model.parameters()) EXPECT_FALSE(parameter.grad().defined());
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

// With checkpointing, each parameter's gradient is ready once, and sent once.
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
}  // namespace reigen::testing::activation_checkpoint_test
