#include "reigen/optim/ema.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "optim/parameters.h"
#include "reigen/base/error.h"

namespace reigen::optim {
namespace {

using namespace testing_parameters;
using testing::HasSubstr;

class Ema : public testing::TestWithParam<at::ScalarType> {};

TEST_P(Ema, IsTheEquationAndChangesPlacesWithTheWeights) {
  const at::ScalarType type = GetParam();
  for (const bool warmup : {false, true}) {
    const auto parameters = make_parameters(type, kLargeShapes);
    const auto list = tensors(parameters);
    tensor::FlatParameters flat(parameters, Communicator());
    ExponentialMovingAverage average(flat.ranges(), {.decay = 0.75, .warmup = warmup});
    std::vector<at::Tensor> expected;
    for (const auto& one : list) expected.push_back(one.detach().clone().to(at::kDouble));
    SGD optimizer(flat.ranges(), {.lr = 0.1});
    for (int step = 0; step < 6; ++step) {
      set_gradients(step, list, {}, false);
      optimizer.step();
      average.update();
      const double decay = warmup ? std::min(0.75, (2.0 + step) / (11.0 + step)) : 0.75;
      for (std::size_t i = 0; i < list.size(); ++i) {
        expected[i] = decay * expected[i] + (1 - decay) * list[i].detach().to(at::kDouble);
      }
    }
    EXPECT_EQ(average.updates(), 6);
    const auto weights = flat.ranges()[0].values().clone();
    {
      const auto swapped = average.swap_in();
      const double tolerance = type == at::kDouble ? 1e-14 : type == at::kFloat ? 1e-6 : 0.02;
      EXPECT_LE(difference(list, expected), tolerance) << "warmup " << warmup;
      EXPECT_THROW(average.update(), InvalidArgument);
      EXPECT_THROW(average.state(), InvalidArgument);
      EXPECT_THROW((void)average.swap_in(), InvalidArgument);
    }
    EXPECT_TRUE(flat.ranges()[0].values().equal(weights)) << "bit for bit";
    const auto state = average.state();
    EXPECT_LE(difference({state[0].tensor}, {expected[0]}), type == at::kDouble ? 1e-14 : 1e-6);
    EXPECT_EQ(state[0].tensor.scalar_type(), type == at::kDouble ? at::kDouble : at::kFloat);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Ema, testing::Values(at::kDouble, at::kFloat, at::kBFloat16));

TEST(EmaState, GoesOnBitwise) {
  const auto run = [](int resume_at) {
    const auto parameters = make_parameters(at::kFloat);
    tensor::FlatParameters flat(parameters, Communicator());
    SGD optimizer(flat.ranges(), {.lr = 0.1});
    auto average = std::make_unique<ExponentialMovingAverage>(flat.ranges(), EmaOptions{.decay = 0.9});
    for (int step = 0; step < 8; ++step) {
      if (step == resume_at) {
        std::vector<NamedTensor> saved;
        for (const NamedTensor& entry : average->state()) saved.push_back({entry.name, entry.tensor.clone()});
        average = std::make_unique<ExponentialMovingAverage>(flat.ranges(), EmaOptions{.decay = 0.9});
        average->load_state(saved);
      }
      set_gradients(step, tensors(parameters), {}, true);
      optimizer.step();
      average->update();
    }
    const auto swapped = average->swap_in();
    return flat.ranges()[0].values().clone();
  };
  EXPECT_TRUE(run(-1).equal(run(4)));
}

TEST(EmaState, OneThatDoesNotFitIsRefused) {
  tensor::FlatParameters flat(make_parameters(at::kFloat), Communicator());
  ExponentialMovingAverage average(flat.ranges());
  auto state = average.state();
  state.erase(state.begin());
  try {
    average.load_state(state);
    ADD_FAILURE() << "an incomplete state passed";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("p0.ema"));
  }
}

TEST(EmaOptions, OutOfRangeAreRefused) {
  tensor::FlatParameters flat(make_parameters(at::kFloat), Communicator());
  for (const double bad : {-0.1, 1.0, std::nan("")}) {
    EXPECT_THROW(ExponentialMovingAverage(flat.ranges(), {.decay = bad}), InvalidArgument);
  }
}

TEST(EmaSwap, AutogradIsTold) {
  const auto parameters = make_parameters(at::kFloat);
  tensor::FlatParameters flat(parameters, Communicator());
  ExponentialMovingAverage average(flat.ranges());
  const auto loss = parameters[0].parameter.square().sum();
  { const auto swapped = average.swap_in(); }
  EXPECT_THROW(loss.backward(), c10::Error);
}

TEST(EmaUpdate, HasTheSameBitsForAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  const auto run = [](int threads) {
    at::set_num_threads(threads);
    const auto parameters = make_parameters(at::kFloat, kLargeShapes);
    tensor::FlatParameters flat(parameters, Communicator());
    ExponentialMovingAverage average(flat.ranges(), {.decay = 0.9});
    at::NoGradGuard no_grad;
    parameters[4].parameter.add_(1);
    average.update();
    const auto swapped = average.swap_in();
    return flat.ranges()[0].values().clone();
  };
  EXPECT_TRUE(run(1).equal(run(3)));
  at::set_num_threads(before);
}

}  // namespace
}  // namespace reigen::optim
