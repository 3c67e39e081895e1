// Compares every optimizer with torch::optim's, if there is one. Also tests the functions that a training loop and a
// checkpoint need.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "harness/torch.h"
#include "optim/parameters.h"
#include "reigen/base/error.h"

namespace reigen::optim {
namespace {

using testing::HasSubstr;
using namespace testing_parameters;

enum class Gradients { kOwn, kInPlace, kMixed };

template <class Ours, class OurOptions, class Reference, class ReferenceOptions>
double compare(const OurOptions& options, const ReferenceOptions& reference_options, at::ScalarType type,
               Gradients where, bool skip_some) {
  const auto parameters = make_parameters(type);
  const auto ours = tensors(parameters);
  const auto reference = tensors(make_parameters(type));
  tensor::FlatParameters flat(parameters, Communicator());
  Ours optimizer(flat.ranges(), options);
  Reference expected(reference, reference_options);
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    expected.zero_grad();
    set_gradients(step, ours, reference, skip_some);
    const ParameterRange& range = flat.ranges()[0];
    for (std::size_t i = 0; i < range.size(); ++i) {
      if (where == Gradients::kInPlace || (where == Gradients::kMixed && i % 2 == 0)) range.gather_gradient(i);
    }
    optimizer.step();
    expected.step();
  }
  EXPECT_EQ(optimizer.steps(), 20);
  EXPECT_GT(difference(ours, tensors(make_parameters(type))), 1e-3) << "the weights moved";
  return difference(ours, reference);
}

struct Case {
  at::ScalarType type;
  double tolerance;
};
const std::vector<Case> kCases{{at::kDouble, 1e-12}, {at::kFloat, 5e-6}};

class Against : public testing::TestWithParam<std::tuple<Gradients, bool>> {};

TEST_P(Against, TorchAdamW) {
  const auto [where, skip_some] = GetParam();
  for (const Case& one : kCases) {
    for (const bool amsgrad : {false, true}) {
      const double got = compare<AdamW, AdamWOptions, torch::optim::AdamW>(
          AdamWOptions{.lr = 3e-2, .betas = {0.8, 0.95}, .eps = 1e-7, .weight_decay = 0.1, .amsgrad = amsgrad},
          torch::optim::AdamWOptions(3e-2).betas({0.8, 0.95}).eps(1e-7).weight_decay(0.1).amsgrad(amsgrad), one.type,
          where, skip_some);
      EXPECT_LE(got, one.tolerance) << c10::toString(one.type) << " amsgrad " << amsgrad;
    }
  }
}

TEST_P(Against, TorchAdamWWithDefaults) {
  const auto [where, skip_some] = GetParam();
  const double got = compare<AdamW, AdamWOptions, torch::optim::AdamW>(AdamWOptions{}, torch::optim::AdamWOptions(),
                                                                       at::kDouble, where, skip_some);
  EXPECT_LE(got, 1e-13);
}

TEST_P(Against, TorchSGD) {
  const auto [where, skip_some] = GetParam();
  const std::vector<SGDOptions> all{{.lr = 0.1},
                                    {.lr = 0.1, .weight_decay = 0.1},
                                    {.lr = 0.1, .momentum = 0.9},
                                    {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1},
                                    {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}};
  for (const Case& one : kCases) {
    for (const SGDOptions& options : all) {
      const auto reference = torch::optim::SGDOptions(options.lr)
                                 .momentum(options.momentum)
                                 .dampening(options.dampening)
                                 .weight_decay(options.weight_decay)
                                 .nesterov(options.nesterov);
      const double got = compare<SGD, SGDOptions, torch::optim::SGD>(options, reference, one.type, where, skip_some);
      EXPECT_LE(got, one.tolerance) << c10::toString(one.type) << " momentum " << options.momentum;
    }
  }
}

TEST_P(Against, TorchAdam) {
  const auto [where, skip_some] = GetParam();
  for (const Case& one : kCases) {
    for (const bool amsgrad : {false, true}) {
      const double got = compare<Adam, AdamOptions, torch::optim::Adam>(
          AdamOptions{.lr = 3e-2, .betas = {0.8, 0.95}, .eps = 1e-7, .weight_decay = 0.1, .amsgrad = amsgrad},
          torch::optim::AdamOptions(3e-2).betas({0.8, 0.95}).eps(1e-7).weight_decay(0.1).amsgrad(amsgrad), one.type,
          where, skip_some);
      EXPECT_LE(got, one.tolerance) << c10::toString(one.type) << " amsgrad " << amsgrad;
    }
  }
}

TEST_P(Against, TorchAdagrad) {
  const auto [where, skip_some] = GetParam();
  for (const Case& one : kCases) {
    const double got = compare<Adagrad, AdagradOptions, torch::optim::Adagrad>(
        AdagradOptions{.lr = 0.1, .lr_decay = 0.05, .weight_decay = 0.1, .initial_accumulator_value = 0.3, .eps = 1e-7},
        torch::optim::AdagradOptions(0.1).lr_decay(0.05).weight_decay(0.1).initial_accumulator_value(0.3).eps(1e-7),
        one.type, where, skip_some);
    EXPECT_LE(got, one.tolerance) << c10::toString(one.type);
  }
}

TEST_P(Against, TorchRMSprop) {
  const auto [where, skip_some] = GetParam();
  for (const bool centered : {false, true}) {
    for (const double momentum : {0.0, 0.7}) {
      const RMSpropOptions options{
          .lr = 0.02, .alpha = 0.9, .eps = 1e-6, .weight_decay = 0.1, .momentum = momentum, .centered = centered};
      const auto reference =
          torch::optim::RMSpropOptions(0.02).alpha(0.9).eps(1e-6).weight_decay(0.1).momentum(momentum).centered(
              centered);
      // Not in fp32, because at a parameter's first step the centered variance is a small difference of large numbers.
      const double got =
          compare<RMSprop, RMSpropOptions, torch::optim::RMSprop>(options, reference, at::kDouble, where, skip_some);
      EXPECT_LE(got, 1e-12) << "centered " << centered << " momentum " << momentum;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Against,
                         testing::Combine(testing::Values(Gradients::kOwn, Gradients::kInPlace, Gradients::kMixed),
                                          testing::Bool()));

TEST(Optimizer, LeavesParametersWithoutAGradientAlone) {
  const auto parameters = make_parameters(at::kFloat);
  tensor::FlatParameters flat(parameters, Communicator());
  AdamW optimizer(flat.ranges(), {.lr = 0.1, .weight_decay = 0.5});
  const auto before = parameters[1].parameter.detach().clone();
  parameters[0].parameter.mutable_grad() = torch::ones({3, 5});
  optimizer.step();
  EXPECT_TRUE(parameters[1].parameter.equal(before));
  int seen = 0;
  for (const NamedTensor& entry : optimizer.state()) {
    if (!entry.name.ends_with(".step")) continue;
    EXPECT_EQ(entry.tensor.item<float>(), entry.name == "p0.step" ? 1.0F : 0.0F) << entry.name;
    ++seen;
  }
  EXPECT_EQ(seen, 5);
}

TEST(Optimizer, RefusesTypesThatNoKernelComputesWith) {
  const at::Tensor zeros = torch::zeros({4}, at::kComplexFloat);
  const ParameterRange range({.values = zeros, .gradients = zeros.clone()}, {});
  try {
    AdamW optimizer({range});
    ADD_FAILURE() << "complex numbers passed";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("fp32, fp64, bf16 or fp16"));
  }
}

TEST(Optimizer, ZeroGradDropsGradients) {
  const auto parameters = make_parameters(at::kFloat);
  tensor::FlatParameters flat(parameters, Communicator());
  SGD optimizer(flat.ranges(), {});
  parameters[0].parameter.mutable_grad() = torch::ones({3, 5});
  optimizer.zero_grad();
  EXPECT_FALSE(parameters[0].parameter.grad().defined());
}

TEST(Optimizer, AModelThatHasLeftItsMemoryIsRefused) {
  const auto parameters = make_parameters(at::kFloat);
  tensor::FlatParameters flat(parameters, Communicator());
  SGD optimizer(flat.ranges(), {});
  at::Tensor moved = parameters[1].parameter;
  moved.mutable_grad() = torch::ones({7});
  optimizer.step();
  moved.set_data(moved.detach().clone());
  try {
    optimizer.step();
    ADD_FAILURE() << "its steps would train nothing";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"p1\""));
  }
}

TEST(Optimizer, AStepInvalidatesAnOlderGraph) {
  const auto parameters = make_parameters(at::kFloat);
  tensor::FlatParameters flat(parameters, Communicator());
  SGD optimizer(flat.ranges(), {});
  const auto loss = parameters[0].parameter.square().sum();
  parameters[0].parameter.mutable_grad() = torch::ones({3, 5});
  optimizer.step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(Optimizer, ResumesBitwise) {
  const auto run = [](int stop_at) {
    const auto parameters = make_parameters(at::kFloat);
    const auto list = tensors(parameters);
    const auto twin = tensors(make_parameters(at::kFloat));
    tensor::FlatParameters flat(parameters, Communicator());
    auto optimizer = std::make_unique<AdamW>(flat.ranges(), AdamWOptions{.lr = 0.01});
    for (int step = 0; step < 8; ++step) {
      if (step == stop_at) {
        std::vector<NamedTensor> saved;
        for (const NamedTensor& entry : optimizer->state()) saved.push_back({entry.name, entry.tensor.clone()});
        std::shuffle(saved.begin(), saved.end(), std::minstd_rand(1));
        auto resumed = std::make_unique<AdamW>(flat.ranges(), AdamWOptions{.lr = 0.01});
        resumed->load_state(saved, optimizer->steps());
        optimizer = std::move(resumed);
      }
      optimizer->zero_grad();
      set_gradients(step, list, twin, true);
      optimizer->step();
    }
    EXPECT_EQ(optimizer->steps(), 8);
    return flat.ranges()[0].values().clone();
  };
  const auto whole = run(-1);
  EXPECT_TRUE(whole.equal(run(5)));
}

TEST(Optimizer, RefusesAStateThatDoesNotFit) {
  tensor::FlatParameters flat(make_parameters(at::kFloat), Communicator());
  AdamW optimizer(flat.ranges(), {});
  using State = std::vector<NamedTensor>;
  const auto error = [&](const std::function<void(State&)>& change, std::int64_t steps = 1) {
    State state;
    for (const NamedTensor& entry : optimizer.state()) state.push_back({entry.name, entry.tensor.clone().fill_(5)});
    change(state);
    try {
      optimizer.load_state(state, steps);
    } catch (const InvalidArgument& caught) {
      EXPECT_EQ(optimizer.state()[0].tensor.abs().sum().item<float>(), 0.0F) << "nothing is changed";
      return std::string(caught.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error([](State& state) { state.erase(state.begin() + 1); }), HasSubstr("p0.exp_avg_sq"));
  EXPECT_THAT(error([](State& state) { state[0].tensor = torch::zeros({5, 3}); }), HasSubstr("[5, 3]"));
  EXPECT_THAT(error([](State& state) { state[0].tensor = torch::zeros({3, 5}, at::kDouble); }), HasSubstr("Double"));
  EXPECT_THAT(error([](State& state) { state[0].tensor = at::Tensor(); }), HasSubstr("undefined"));
  EXPECT_THAT(error([](State& state) { state.push_back({"x.exp_avg", torch::zeros(1)}); }), HasSubstr("x.exp_avg"));
  EXPECT_THAT(error([](State& state) { state.push_back(state[0]); }), HasSubstr("twice"));
  EXPECT_THAT(error([](State&) {}, -1), HasSubstr("negative"));
  EXPECT_EQ(error([](State&) {}), "no error");
}

TEST(Optimizer, TheLearningRateCanBeSet) {
  const auto parameters = make_parameters(at::kFloat);
  tensor::FlatParameters flat(parameters, Communicator());
  const std::unique_ptr<Optimizer> optimizer = std::make_unique<SGD>(flat.ranges(), SGDOptions{.lr = 0.5});
  EXPECT_EQ(optimizer->name(), "sgd");
  EXPECT_EQ(optimizer->lr(), 0.5);
  optimizer->set_lr(0.25);
  EXPECT_EQ(optimizer->lr(), 0.25);
  const auto before = parameters[1].parameter.detach().clone();
  parameters[1].parameter.mutable_grad() = torch::ones(7);
  optimizer->step();
  EXPECT_TRUE(parameters[1].parameter.equal(before - 0.25));
  EXPECT_THROW(optimizer->set_lr(-1), InvalidArgument);
  EXPECT_THROW(optimizer->set_lr(std::nan("")), InvalidArgument);
}

TEST(Optimizer, RefusesBadOptionsNamingThem) {
  tensor::FlatParameters flat(make_parameters(at::kFloat), Communicator());
  const double nan = std::nan("");
  const auto expect = [](const std::function<void()>& make, const std::string& option) {
    try {
      make();
      ADD_FAILURE() << option << " passed";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr(option), HasSubstr("got: "), HasSubstr("expected: ")));
    }
  };
  for (const double bad : {-1.0, nan, std::numeric_limits<double>::infinity()}) {
    expect([&] { AdamW(flat.ranges(), {.lr = bad}); }, "lr");
    expect([&] { AdamW(flat.ranges(), {.betas = {bad, 0.9}}); }, "betas.first");
    expect([&] { AdamW(flat.ranges(), {.betas = {0.9, bad}}); }, "betas.second");
    expect([&] { AdamW(flat.ranges(), {.eps = bad}); }, "eps");
    expect([&] { AdamW(flat.ranges(), {.weight_decay = bad}); }, "weight_decay");
    expect([&] { SGD(flat.ranges(), {.lr = bad}); }, "lr");
    expect([&] { SGD(flat.ranges(), {.momentum = bad}); }, "momentum");
    expect([&] { SGD(flat.ranges(), {.weight_decay = bad}); }, "weight_decay");
  }
  expect([&] { AdamW(flat.ranges(), {.eps = 0}); }, "eps");
  expect([&] { AdamW(flat.ranges(), {.betas = {1.0, 0.9}}); }, "betas.first");
  expect([&] { SGD(flat.ranges(), {.dampening = nan}); }, "dampening");
  expect([&] { SGD(flat.ranges(), {.nesterov = true}); }, "nesterov");
  expect([&] { SGD(flat.ranges(), {.momentum = 0.9, .dampening = 0.1, .nesterov = true}); }, "nesterov");
  expect([&] { AdamW({}, {}); }, "nothing to optimize");
  expect([&] { AdamW(flat.ranges(), {.eps = 1e-50}); }, "eps");
}

}  // namespace
}  // namespace reigen::optim
