// Compares the optimizers that LibTorch lacks with the equations of their papers. Also tests the features of every
// optimizer: groups, gradient factors, bf16 states, going on from a state, equal bits for any number of threads.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <cmath>

#include "harness/torch.h"
#include "optim/parameters.h"
#include "reigen/base/error.h"

namespace reigen::optim {
namespace {

using testing::HasSubstr;
using namespace testing_parameters;

// p = update(p, g, states, step) on plain tensors, for each parameter alone.
using Equations = std::function<at::Tensor(const at::Tensor&, const at::Tensor&, std::vector<at::Tensor>&, int)>;

// The largest difference after 20 steps. Each parameter has no gradient in some of them.
double against_equations(const Maker& maker, const Equations& equations, at::ScalarType type = at::kDouble) {
  const auto parameters = make_parameters(type);
  const auto ours = tensors(parameters);
  std::vector<at::Tensor> expected;
  for (const auto& one : ours) expected.push_back(one.detach().clone().to(at::kDouble));
  std::vector<std::vector<at::Tensor>> states(ours.size());
  std::vector<int> steps(ours.size());
  for (std::size_t i = 0; i < ours.size(); ++i) states[i].assign(2, torch::zeros_like(expected[i]));
  tensor::FlatParameters flat(parameters, Communicator());
  const auto optimizer = maker.make(flat.ranges());
  for (int step = 0; step < 20; ++step) {
    optimizer->zero_grad();
    set_gradients(step, ours, {}, true);
    for (std::size_t i = 0; i < ours.size(); ++i) {
      if (!ours[i].grad().defined()) continue;
      expected[i] = equations(expected[i], ours[i].grad().to(at::kDouble), states[i], ++steps[i]);
    }
    optimizer->step();
  }
  return difference(ours, expected);
}

TEST(Rules, LionIsTheProgramOfItsPaper) {
  const LionOptions options{.lr = 0.01, .betas = {0.8, 0.95}, .weight_decay = 0.1};
  const auto equations = [&](const at::Tensor& p, const at::Tensor& g, std::vector<at::Tensor>& s, int) {
    const auto c = options.betas.first * s[0] + (1 - options.betas.first) * g;
    s[0] = options.betas.second * s[0] + (1 - options.betas.second) * g;
    return p - options.lr * (c.sign() + options.weight_decay * p);
  };
  EXPECT_LE(against_equations(maker<Lion>("lion", options), equations), 1e-12);
  EXPECT_LE(against_equations(maker<Lion>("lion", options), equations, at::kFloat), 2e-6);
}

TEST(Rules, LarsIsAlgorithm1OfItsPaper) {
  const LARSOptions options{.lr = 20, .momentum = 0.9, .weight_decay = 5e-3, .trust_coefficient = 0.002};
  const auto equations = [&](const at::Tensor& p, const at::Tensor& g, std::vector<at::Tensor>& s, int) {
    const double local = options.trust_coefficient * p.norm().item<double>() /
                         (g.norm().item<double>() + options.weight_decay * p.norm().item<double>());
    s[0] = options.momentum * s[0] + options.lr * local * (g + options.weight_decay * p);
    return p - s[0];
  };
  EXPECT_LE(against_equations(maker<LARS>("lars", options), equations), 1e-12);
  EXPECT_LE(against_equations(maker<LARS>("lars", options), equations, at::kFloat), 2e-5);
}

TEST(Rules, LambIsAlgorithm2OfItsPaper) {
  for (const double high : {std::numeric_limits<double>::infinity(), 2.0}) {
    const LAMBOptions options{
        .lr = 0.02, .betas = {0.8, 0.95}, .eps = 1e-6, .weight_decay = 0.1, .norm_low = 0.5, .norm_high = high};
    const auto equations = [&](const at::Tensor& p, const at::Tensor& g, std::vector<at::Tensor>& s, int step) {
      const auto [beta1, beta2] = options.betas;
      s[0] = beta1 * s[0] + (1 - beta1) * g;
      s[1] = beta2 * s[1] + (1 - beta2) * g * g;
      const auto ratio =
          (s[0] / (1 - std::pow(beta1, step))) / ((s[1] / (1 - std::pow(beta2, step))).sqrt() + options.eps);
      const auto direction = ratio + options.weight_decay * p;
      const double phi = std::min(std::max(p.norm().item<double>(), options.norm_low), options.norm_high);
      return p - options.lr * phi / direction.norm().item<double>() * direction;
    };
    EXPECT_LE(against_equations(maker<LAMB>("lamb", options), equations), 1e-12) << high;
    EXPECT_LE(against_equations(maker<LAMB>("lamb", options), equations, at::kFloat), 2e-5) << high;
  }
}

TEST(Rules, WithoutAdaptationLarsIsMomentumAndLambIsAdamW) {
  const ParameterGroup all{.patterns = {"*"}, .adapt = false};
  const auto momentum = [](const at::Tensor& p, const at::Tensor& g, std::vector<at::Tensor>& s, int) {
    s[0] = 0.9 * s[0] + 0.1 * (g + 0.01 * p);
    return p - s[0];
  };
  const LARSOptions lars{.lr = 0.1, .weight_decay = 0.01, .groups = {all}};
  EXPECT_LE(against_equations(maker<LARS>("lars", lars), momentum), 1e-12);
  const auto adamw = [](const at::Tensor& p, const at::Tensor& g, std::vector<at::Tensor>& s, int step) {
    s[0] = 0.9 * s[0] + 0.1 * g;
    s[1] = 0.999 * s[1] + 0.001 * g * g;
    const auto root = (s[1] / (1 - std::pow(0.999, step))).sqrt() + 1e-6;
    return p - 0.01 * (s[0] / (1 - std::pow(0.9, step)) / root + 0.1 * p);
  };
  const LAMBOptions lamb{.lr = 0.01, .weight_decay = 0.1, .groups = {all}};
  EXPECT_LE(against_equations(maker<LAMB>("lamb", lamb), adamw), 1e-12);
}

TEST(Rules, ATrustRatioOfZeroesIsOne) {
  for (const Maker& one : {maker<LARS>("lars", LARSOptions{.lr = 0.5}), maker<LAMB>("lamb", LAMBOptions{.lr = 0.5})}) {
    const std::vector<tensor::NamedParameter> parameters{
        {.name = "w", .parameter = torch::zeros({2, 3}).requires_grad_()},
        {.name = "v", .parameter = torch::ones({2, 3}).requires_grad_()}};
    tensor::FlatParameters flat(parameters, Communicator());
    const auto optimizer = one.make(flat.ranges());
    parameters[0].parameter.mutable_grad() = torch::ones({2, 3});
    parameters[1].parameter.mutable_grad() = torch::zeros({2, 3});
    optimizer->step();
    EXPECT_NEAR(parameters[0].parameter[0][0].item<double>(), -0.5, 1e-5) << one.name;
    EXPECT_TRUE(parameters[1].parameter.equal(torch::ones({2, 3}))) << one.name;
  }
}

// The result of a run of some steps: values and states.
struct Outcome {
  at::Tensor values;
  std::vector<NamedTensor> state;
};

Outcome run(const Maker& maker, const Shapes& shapes, int steps, int resume_at = -1, const StepOptions& how = {},
            double scale = 1) {
  const auto parameters = make_parameters(at::kFloat, shapes);
  const auto list = tensors(parameters);
  tensor::FlatParameters flat(parameters, Communicator());
  auto optimizer = maker.make(flat.ranges());
  for (int step = 0; step < steps; ++step) {
    if (step == resume_at) {
      std::vector<NamedTensor> saved;
      for (const NamedTensor& entry : optimizer->state()) saved.push_back({entry.name, entry.tensor.clone()});
      auto resumed = maker.make(flat.ranges());
      resumed->load_state(saved, optimizer->steps());
      optimizer = std::move(resumed);
    }
    optimizer->zero_grad();
    set_gradients(step, list, {}, true, scale);
    optimizer->step(how);
  }
  return {flat.ranges()[0].values().clone(), optimizer->state()};
}

bool equal(const Outcome& a, const Outcome& b) {
  if (!a.values.equal(b.values) || a.state.size() != b.state.size()) return false;
  for (std::size_t i = 0; i < a.state.size(); ++i) {
    if (a.state[i].name != b.state[i].name || !a.state[i].tensor.equal(b.state[i].tensor)) return false;
  }
  return true;
}

TEST(Rules, EveryOptimizerGoesOnBitwise) {
  for (const Maker& one : every_optimizer()) {
    EXPECT_TRUE(equal(run(one, kShapes, 8), run(one, kShapes, 8, 5))) << one.name;
  }
}

TEST(Rules, TheBitsDoNotDependOnTheNumberOfThreads) {
  const int before = at::get_num_threads();
  for (const Maker& one : every_optimizer()) {
    at::set_num_threads(1);
    const Outcome alone = run(one, kLargeShapes, 3);
    for (const int threads : {2, 5}) {
      at::set_num_threads(threads);
      EXPECT_TRUE(equal(alone, run(one, kLargeShapes, 3))) << one.name << ' ' << threads;
    }
  }
  at::set_num_threads(before);
}

TEST(Rules, AFactorOfTheGradientsIsTheSameAsOtherGradients) {
  for (const Maker& one : every_optimizer()) {
    EXPECT_TRUE(equal(run(one, kShapes, 4), run(one, kShapes, 4, -1, {.gradient_factor = 0.125}, 8))) << one.name;
  }
}

TEST(Rules, GradientsAreClampedWhileTheyAreRead) {
  for (const Maker& one : every_optimizer()) {
    const auto parameters = make_parameters(at::kFloat);
    const auto clamped = make_parameters(at::kFloat);
    tensor::FlatParameters flat(parameters, Communicator());
    tensor::FlatParameters flat_clamped(clamped, Communicator());
    const auto optimizer = one.make(flat.ranges());
    const auto other = one.make(flat_clamped.ranges());
    for (int step = 0; step < 3; ++step) {
      set_gradients(step, tensors(parameters), tensors(clamped), false);
      for (const auto& entry : clamped) entry.parameter.mutable_grad() = (entry.parameter.grad() * 2).clamp(-0.5, 0.5);
      const auto kept = parameters[0].parameter.grad().clone();
      optimizer->step({.gradient_factor = 2, .gradient_limit = 0.5});
      other->step();
      EXPECT_TRUE(parameters[0].parameter.grad().equal(kept)) << "the gradients stay as they are";
    }
    EXPECT_EQ(difference(tensors(parameters), tensors(clamped)), 0) << one.name;
  }
}

TEST(Rules, NotANumberInAGradientReachesTheWeights) {
  for (const Maker& one : every_optimizer()) {
    const auto parameters = make_parameters(at::kFloat);
    tensor::FlatParameters flat(parameters, Communicator());
    const auto optimizer = one.make(flat.ranges());
    parameters[0].parameter.mutable_grad() = torch::full({3, 5}, std::nan(""));
    optimizer->step({.gradient_limit = 1});
    EXPECT_TRUE(parameters[0].parameter.isnan().all().item<bool>()) << one.name;
  }
}

TEST(Rules, BadStepOptionsAreRefusedAndChangeNothing) {
  const auto parameters = make_parameters(at::kFloat);
  tensor::FlatParameters flat(parameters, Communicator());
  AdamW optimizer(flat.ranges());
  set_gradients(0, tensors(parameters), {}, false);
  const auto before = flat.ranges()[0].values().clone();
  for (const StepOptions& bad : {StepOptions{.gradient_factor = std::nan("")},
                                 {.gradient_factor = std::numeric_limits<double>::infinity()},
                                 {.gradient_limit = 0},
                                 {.gradient_limit = -1},
                                 {.gradient_limit = std::nan("")}}) {
    EXPECT_THROW(optimizer.step(bad), InvalidArgument);
  }
  EXPECT_EQ(optimizer.steps(), 0);
  EXPECT_TRUE(flat.ranges()[0].values().equal(before));
}

// ---- groups

TEST(Groups, TheFirstMatchCounts) {
  const std::vector<tensor::NamedParameter> parameters{
      {.name = "head.weight", .parameter = torch::ones({2, 2}).requires_grad_()},
      {.name = "body.weight", .aliases = {"tied.weight"}, .parameter = torch::ones({2, 2}).requires_grad_()},
      {.name = "body.bias", .parameter = torch::ones({2}).requires_grad_()},
      {.name = "rest", .parameter = torch::ones({2, 2}).requires_grad_()}};
  tensor::FlatParameters flat(parameters, Communicator());
  SGD optimizer(flat.ranges(), {.lr = 0.1,
                                .weight_decay = 0.5,
                                .groups = {{.patterns = {"head.*"}, .lr_factor = 10, .weight_decay = 0},
                                           {.patterns = {"tied.*"}, .weight_decay = 1},
                                           no_decay()}});
  for (const auto& entry : parameters) entry.parameter.mutable_grad() = torch::ones_like(entry.parameter);
  optimizer.step();
  const auto value = [&](std::size_t i) { return parameters[i].parameter.view(-1)[0].item<double>(); };
  EXPECT_NEAR(value(0), 1 - 1.0, 1e-6);
  EXPECT_NEAR(value(1), 1 - 0.1 * 2, 1e-6);
  EXPECT_NEAR(value(2), 1 - 0.1, 1e-6);
  EXPECT_NEAR(value(3), 1 - 0.1 * 1.5, 1e-6);
}

TEST(Groups, PatternsAreOfTheWholeName) {
  const auto match = [](const std::string& pattern, const std::string& name,
                        const std::vector<std::int64_t>& shape = {2, 2}) {
    return matches(pattern, {.name = name, .shape = shape, .parameter = at::Tensor()});
  };
  EXPECT_TRUE(match("*", ""));
  EXPECT_TRUE(match("a.b", "a.b"));
  EXPECT_FALSE(match("a.b", "a.bc"));
  EXPECT_FALSE(match("b", "a.b"));
  EXPECT_TRUE(match("*norm*", "layers.0.norm1.weight"));
  EXPECT_TRUE(match("*.bias", "a.bias"));
  EXPECT_FALSE(match("*.bias", "bias"));
  EXPECT_TRUE(match("layers.?.w", "layers.3.w"));
  EXPECT_FALSE(match("layers.?.w", "layers.13.w"));
  EXPECT_TRUE(match("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(match("a*b*c", "aXbYbZ"));
  EXPECT_FALSE(match("@vectors", "x"));
  EXPECT_TRUE(match("@vectors", "x", {2}));
  EXPECT_TRUE(match("@vectors", "x", {}));
}

TEST(Groups, UnmatchedPatternsAreTold) {
  tensor::FlatParameters flat(make_parameters(at::kFloat), Communicator());
  EXPECT_THAT(unmatched_patterns({{.patterns = {"p1", "q*"}}, {.patterns = {"@vectors", "P1"}}}, flat.ranges()),
              testing::ElementsAre("q*", "P1"));
}

TEST(Groups, BadOnesAreRefused) {
  tensor::FlatParameters flat(make_parameters(at::kFloat), Communicator());
  const auto error = [&](const ParameterGroup& group) -> std::string {
    try {
      SGD(flat.ranges(), {.groups = {group}});
    } catch (const InvalidArgument& caught) {
      return caught.what();
    }
    return "no error";
  };
  EXPECT_THAT(error({.patterns = {"*"}, .lr_factor = -1}), HasSubstr("groups[0].lr_factor"));
  EXPECT_THAT(error({.patterns = {"*"}, .weight_decay = std::nan("")}), HasSubstr("groups[0].weight_decay"));
  EXPECT_THAT(error({}), HasSubstr("groups[0].patterns is empty"));
}

// ---- bf16 states

// With random rounding the second moment follows the gradients. With rounding to nearest it would remain 1, because a
// step changes it by less than half of a last place.
TEST(Bf16States, TheSecondMomentDoesNotStandStill) {
  const std::vector<tensor::NamedParameter> parameters{
      {.name = "w", .parameter = torch::ones({20000}).requires_grad_()}};
  tensor::FlatParameters flat(parameters, Communicator());
  AdamW optimizer(flat.ranges(), {.bf16_states = true});
  for (const NamedTensor& entry : optimizer.state()) {
    if (entry.name == "w.exp_avg_sq") entry.tensor.fill_(1);
  }
  for (int step = 0; step < 500; ++step) {
    parameters[0].parameter.mutable_grad() = torch::full({20000}, 0.5F);
    optimizer.step();
  }
  const double expected = 0.25 + 0.75 * std::pow(0.999, 500);
  for (const NamedTensor& entry : optimizer.state()) {
    if (entry.name != "w.exp_avg_sq") continue;
    EXPECT_EQ(entry.tensor.scalar_type(), at::kBFloat16);
    EXPECT_NEAR(entry.tensor.to(at::kDouble).mean().item<double>(), expected, 1e-3) << "no bias";
    EXPECT_LE(entry.tensor.to(at::kDouble).std().item<double>(), 0.06);
  }
}

TEST(Bf16States, StayNearTheFp32Run) {
  const auto makers = every_optimizer();
  for (std::size_t i = 0; i < makers.size(); ++i) {
    if (!makers[i].bf16_states) continue;
    const std::string name = makers[i].name.substr(0, makers[i].name.find(' '));
    const Maker plain = name == "sgd"    ? maker<SGD>(name, SGDOptions{.lr = 0.1, .momentum = 0.9})
                        : name == "adam" ? maker<Adam>(name, AdamOptions{.lr = 0.01})
                        : name == "lion" ? maker<Lion>(name, LionOptions{.lr = 0.01})
                                         : maker<AdamW>(name, AdamWOptions{.lr = 0.01});
    const at::Tensor expected = run(plain, kLargeShapes, 20).values;
    const Outcome got = run(makers[i], kLargeShapes, 20);
    const at::Tensor start = run(plain, kLargeShapes, 0).values;
    // The difference as a share of the change of the weights. Lion's signs flip where a momentum is near 0.
    const double share = ((got.values - expected).norm() / (expected - start).norm()).item<double>();
    EXPECT_LE(share, name == "lion" ? 0.1 : 0.01) << name;
    EXPECT_GT(share, 0) << name;
  }
}

TEST(Bf16States, RefusedWhereTheyMakeNoSense) {
  tensor::FlatParameters flat(make_parameters(at::kFloat), Communicator());
  tensor::FlatParameters exact(make_parameters(at::kDouble), Communicator());
  EXPECT_THROW(AdamW(flat.ranges(), {.amsgrad = true, .bf16_states = true}), InvalidArgument);
  EXPECT_THROW(SGD(flat.ranges(), {.bf16_states = true}), InvalidArgument);
  EXPECT_THROW(AdamW(exact.ranges(), {.bf16_states = true}), InvalidArgument);
}

TEST(Bf16States, AnFp32StateIsRefused) {
  tensor::FlatParameters flat(make_parameters(at::kFloat), Communicator());
  AdamW plain(flat.ranges());
  AdamW halves(flat.ranges(), {.bf16_states = true});
  try {
    halves.load_state(plain.state(), 1);
    ADD_FAILURE() << "a state of another type passed";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("BFloat16"));
  }
}

// Values, gradients and states are bf16. Values are rounded once a step, so they may differ by half of a last place a
// step.
TEST(Bf16Values, EveryOptimizerRuns) {
  for (const Maker& one : every_optimizer()) {
    if (one.bf16_states) continue;
    const auto parameters = make_parameters(at::kBFloat16);
    const auto exact = make_parameters(at::kBFloat16);
    std::vector<tensor::NamedParameter> singles;
    for (const auto& entry : exact) {
      singles.push_back({.name = entry.name, .parameter = entry.parameter.detach().to(at::kFloat).requires_grad_()});
    }
    tensor::FlatParameters flat(parameters, Communicator());
    tensor::FlatParameters flat_exact(singles, Communicator());
    const auto optimizer = one.make(flat.ranges());
    const auto reference = one.make(flat_exact.ranges());
    for (int step = 0; step < 3; ++step) {
      set_gradients(step, tensors(parameters), {}, false);
      for (std::size_t i = 0; i < singles.size(); ++i) {
        singles[i].parameter.mutable_grad() = parameters[i].parameter.grad().to(at::kFloat);
      }
      optimizer->step();
      reference->step();
    }
    const double size = flat_exact.ranges()[0].values().abs().max().item<double>();
    EXPECT_LE(difference(tensors(parameters), tensors(singles)), 0.02 * (1 + size)) << one.name;
  }
}

// ---- fp32 masters of 16-bit values

// The kernels round like LibTorch: every fp16 and bf16 number, and numbers between them.
TEST(Masters, RoundAsLibTorchDoes) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor all = torch::arange(0, 65536, torch::kInt).to(torch::kShort).view(type);
    const at::Tensor finite = all.index({all.to(at::kFloat).isfinite()}).contiguous();
    auto generator = at::detail::createCPUGenerator(1);
    const at::Tensor near = finite.to(at::kFloat) * (1 + torch::randn({finite.numel()}, generator) * 1e-3);
    const at::Tensor ties = (finite.to(at::kFloat).roll(1) + finite.to(at::kFloat)) / 2;
    // Numbers are clamped, because infinity times a weight decay of 0 is NaN.
    for (const at::Tensor& numbers : {finite.to(at::kFloat), near.clamp(-3e38, 3e38), ties.clamp(-3e38, 3e38)}) {
      const std::vector<tensor::NamedParameter> parameters{
          {.name = "w", .parameter = torch::zeros({finite.numel()}, type).requires_grad_()}};
      tensor::FlatParameters flat(parameters, Communicator());
      SGD optimizer(flat.ranges(), {.lr = 1});
      for (const NamedTensor& entry : optimizer.state()) {
        if (entry.name == "w.master") entry.tensor.copy_(numbers);
      }
      const at::Tensor expected = numbers.to(type);
      torch::NoGradGuard no_grad;
      parameters[0].parameter.copy_(expected);
      parameters[0].parameter.mutable_grad() = torch::zeros({finite.numel()}, type);
      optimizer.step();
      EXPECT_TRUE(parameters[0].parameter.equal(expected));
      // If the kernels rounded a master differently, they would take the value for one that the user has changed.
      for (const NamedTensor& entry : optimizer.state()) {
        if (entry.name == "w.master") {
          EXPECT_TRUE(entry.tensor.equal(numbers));
        }
      }
    }
  }
}

// With the same gradients the masters equal the values of an fp32 model, bit by bit, and the values are their rounding.
TEST(Masters, GoTheWayOfFp32) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    for (const Maker& one : every_optimizer()) {
      if (one.bf16_states) continue;
      const auto narrow = make_parameters(type, kLargeShapes);
      std::vector<tensor::NamedParameter> wide;
      for (const auto& entry : narrow) {
        wide.push_back({.name = entry.name, .parameter = entry.parameter.detach().to(at::kFloat).requires_grad_()});
      }
      tensor::FlatParameters flat(narrow, Communicator());
      tensor::FlatParameters flat_wide(wide, Communicator());
      const auto optimizer = one.make(flat.ranges());
      const auto reference = one.make(flat_wide.ranges());
      for (int step = 0; step < 5; ++step) {
        set_gradients(step, tensors(narrow), {}, false);
        for (std::size_t i = 0; i < wide.size(); ++i) {
          wide[i].parameter.mutable_grad() = narrow[i].parameter.grad().to(at::kFloat);
        }
        optimizer->step();
        reference->step();
      }
      for (std::size_t i = 0; i < wide.size(); ++i) {
        EXPECT_TRUE(narrow[i].parameter.equal(wide[i].parameter.to(type))) << one.name << ' ' << i;
      }
      for (const NamedTensor& entry : optimizer->state()) {
        for (const auto& of_wide : wide) {
          if (entry.name == of_wide.name + ".master") {
            EXPECT_TRUE(entry.tensor.equal(of_wide.parameter)) << one.name;
          }
        }
      }
    }
  }
}

// A hundred steps of a thousandth each. Without masters every step is lost by rounding.
TEST(Masters, KeepSmallSteps) {
  for (const bool masters : {true, false}) {
    const std::vector<tensor::NamedParameter> parameters{
        {.name = "w", .parameter = torch::ones({100}, at::kBFloat16).requires_grad_()}};
    tensor::FlatParameters flat(parameters, Communicator());
    SGD optimizer(flat.ranges(), {.lr = 1e-3, .master_weights = masters});
    for (int step = 0; step < 100; ++step) {
      parameters[0].parameter.mutable_grad() = torch::ones({100}, at::kBFloat16);
      optimizer.step();
    }
    EXPECT_NEAR(parameters[0].parameter.mean().item<double>(), masters ? 0.9 : 1.0, 1.0 / 256);
  }
}

TEST(Masters, BeginAnewWhereSomebodyChangedAValue) {
  const std::vector<tensor::NamedParameter> parameters{
      {.name = "w", .parameter = torch::ones({2}, at::kBFloat16).requires_grad_()}};
  tensor::FlatParameters flat(parameters, Communicator());
  SGD optimizer(flat.ranges(), {.lr = 1e-3});
  const auto step = [&] {
    parameters[0].parameter.mutable_grad() = torch::ones({2}, at::kBFloat16);
    optimizer.step();
  };
  step();
  {
    torch::NoGradGuard no_grad;
    parameters[0].parameter[1] = 5;
  }
  step();
  for (const NamedTensor& entry : optimizer.state()) {
    if (entry.name != "w.master") continue;
    EXPECT_FLOAT_EQ(entry.tensor[0].item<float>(), 0.998F);
    EXPECT_FLOAT_EQ(entry.tensor[1].item<float>(), 4.999F);
  }
}

TEST(Rules, BadOptionsAreRefusedNamingThem) {
  tensor::FlatParameters flat(make_parameters(at::kFloat), Communicator());
  const auto expect = [](const std::function<void()>& make, const std::string& option) {
    try {
      make();
      ADD_FAILURE() << option << " passed";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(option), HasSubstr("got: "), HasSubstr("expected: ")));
    }
  };
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    expect([&] { Adam(flat.ranges(), {.betas = {bad, 0.9}}); }, "betas.first");
    expect([&] { Adam(flat.ranges(), {.eps = bad}); }, "eps");
    expect([&] { Adagrad(flat.ranges(), {.lr_decay = bad}); }, "lr_decay");
    expect([&] { Adagrad(flat.ranges(), {.initial_accumulator_value = bad}); }, "initial_accumulator_value");
    expect([&] { Adagrad(flat.ranges(), {.eps = bad}); }, "eps");
    expect([&] { RMSprop(flat.ranges(), {.alpha = bad}); }, "alpha");
    expect([&] { RMSprop(flat.ranges(), {.momentum = bad}); }, "momentum");
    expect([&] { Lion(flat.ranges(), {.betas = {0.9, bad}}); }, "betas.second");
    expect([&] { Lion(flat.ranges(), {.weight_decay = bad}); }, "weight_decay");
    expect([&] { LARS(flat.ranges(), {.momentum = bad}); }, "momentum");
    expect([&] { LARS(flat.ranges(), {.trust_coefficient = bad}); }, "trust_coefficient");
    expect([&] { LAMB(flat.ranges(), {.lr = bad}); }, "lr");
    expect([&] { LAMB(flat.ranges(), {.norm_low = bad}); }, "norm_low");
  }
  expect([&] { LAMB(flat.ranges(), {.norm_low = 2, .norm_high = 1}); }, "norm_high");
  expect([&] { RMSprop(flat.ranges(), {.eps = 0}); }, "eps");
}

}  // namespace
}  // namespace reigen::optim
