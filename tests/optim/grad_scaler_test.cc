#include "reigen/optim/grad_scaler.h"

#include <limits>

#include "optim/parameters.h"
#include "reigen/base/error.h"
#include "reigen/runtime/init.h"

namespace reigen::optim {
namespace {

using testing::HasSubstr;
using namespace testing_parameters;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A weight whose gradient the test sets.
struct OneWeight {
  OneWeight()
      : parameters{{.name = "w", .parameter = torch::ones({3}).requires_grad_()}},
        flat(parameters, Communicator()),
        optimizer(flat.ranges(), {.lr = 1}) {}
  void set_gradient(double value) { parameters[0].parameter.mutable_grad() = torch::full({3}, value); }
  double weight() const { return parameters[0].parameter[0].item<double>(); }

  std::vector<tensor::NamedParameter> parameters;
  tensor::FlatParameters flat;
  SGD optimizer;
};

TEST(GradScaler, StepsWithTrueGradients) {
  OneWeight one;
  GradScaler scaler({.init_scale = 1024});
  const at::Tensor loss = scaler.scale((one.parameters[0].parameter * 0.25).sum());
  loss.backward();
  EXPECT_EQ(one.parameters[0].parameter.grad()[0].item<double>(), 256);
  EXPECT_TRUE(scaler.step(one.optimizer, one.flat.ranges()));
  EXPECT_EQ(one.weight(), 0.75);
  EXPECT_DOUBLE_EQ(scaler.last_norm(), 0.25 * std::sqrt(3.0));
}

TEST(GradScaler, ClipsTrueGradients) {
  OneWeight one;
  GradScaler scaler({.init_scale = 8});
  one.set_gradient(8);
  EXPECT_TRUE(scaler.step(one.optimizer, one.flat.ranges(), {.max_norm = 0.5}));
  EXPECT_NEAR(one.weight(), 1 - 0.5 / std::sqrt(3.0), 1e-6);
  one.set_gradient(8);
  EXPECT_TRUE(scaler.step(one.optimizer, one.flat.ranges(), {.max_value = 0.125}));
  EXPECT_NEAR(one.weight(), 1 - 0.5 / std::sqrt(3.0) - 0.125, 1e-6);
}

TEST(GradScaler, SkipsAndBacksOffThenGrows) {
  OneWeight one;
  GradScaler scaler({.init_scale = 64, .growth_interval = 3});
  for (const double bad : {kInfinity, std::nan("")}) {
    one.set_gradient(bad);
    EXPECT_FALSE(scaler.step(one.optimizer, one.flat.ranges()));
  }
  EXPECT_EQ(one.weight(), 1);
  EXPECT_EQ(one.optimizer.steps(), 0);
  EXPECT_EQ(scaler.scale(), 16);
  EXPECT_EQ(scaler.skipped(), 2);
  for (const double expected : {16.0, 16.0, 32.0, 32.0}) {
    one.set_gradient(0);
    EXPECT_TRUE(scaler.step(one.optimizer, one.flat.ranges()));
    EXPECT_EQ(scaler.scale(), expected);
  }
}

TEST(GradScaler, AtItsSmallestItIsAnError) {
  OneWeight one;
  GradScaler scaler({.init_scale = 2});
  one.set_gradient(kInfinity);
  EXPECT_FALSE(scaler.step(one.optimizer, one.flat.ranges()));
  try {
    scaler.step(one.optimizer, one.flat.ranges());
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kNotANumber);
    EXPECT_THAT(error.what(), HasSubstr("scale 1, norm inf"));
  }
}

TEST(GradScaler, GoesOnFromItsState) {
  OneWeight one;
  GradScaler scaler({.init_scale = 64, .growth_interval = 2});
  one.set_gradient(kInfinity);
  scaler.step(one.optimizer, one.flat.ranges());
  one.set_gradient(1);
  scaler.step(one.optimizer, one.flat.ranges());
  GradScaler other({.init_scale = 4, .growth_interval = 2});
  other.load_state(scaler.state());
  EXPECT_EQ(other.scale(), 32);
  EXPECT_EQ(other.skipped(), 1);
  other.step(one.optimizer, one.flat.ranges());
  EXPECT_EQ(other.scale(), 64) << "the clean step before counts";
  EXPECT_THROW(other.load_state({}), InvalidArgument);
}

TEST(GradScaler, DisabledItIsNotThere) {
  OneWeight one;
  GradScaler scaler({.enabled = false});
  const at::Tensor loss = one.parameters[0].parameter.sum();
  EXPECT_TRUE(scaler.scale(loss).is_same(loss));
  one.set_gradient(0.5);
  EXPECT_TRUE(scaler.step(one.optimizer, one.flat.ranges()));
  EXPECT_EQ(one.weight(), 0.5);
}

// Only rank 1 overflows, and no rank steps.
TEST(GradScaler, RanksDecideTogether) {
  run_threads(3, [](Communicator& world) {
    OneWeight one;
    GradScaler scaler({.init_scale = 64});
    one.set_gradient(world.rank() == 1 ? kInfinity : 1);
    EXPECT_FALSE(scaler.step(one.optimizer, one.flat.ranges(), {.agree = &world}));
    EXPECT_EQ(one.weight(), 1);
    EXPECT_EQ(scaler.scale(), 32);
    EXPECT_FALSE(std::isfinite(scaler.last_norm()));
    one.set_gradient(32);
    EXPECT_TRUE(scaler.step(one.optimizer, one.flat.ranges(), {.agree = &world}));
    EXPECT_EQ(one.weight(), 0);
  });
}

TEST(GradScaler, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(GradScaler({.init_scale = 0}), InvalidArgument);
  EXPECT_THROW(GradScaler({.growth_factor = 1}), InvalidArgument);
  EXPECT_THROW(GradScaler({.backoff_factor = 1}), InvalidArgument);
  EXPECT_THROW(GradScaler({.growth_interval = 0}), InvalidArgument);
  EXPECT_THROW(GradScaler({.min_scale = std::nan("")}), InvalidArgument);
}

}  // namespace
}  // namespace reigen::optim
