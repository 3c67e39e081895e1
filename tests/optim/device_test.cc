// Optimizers, norms, clipping and averages of weights on a GPU give the bits of the host. LibTorch's device and CUDA
// are the stand-ins of tests/fakes/: an access by the host to the GPU's memory is SIGSEGV.
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "fakes/cuda/stand_in.h"
#include "harness/torch.h"
#include "optim/parameters.h"
#include "reigen/base/error.h"
#include "reigen/optim/clip.h"
#include "reigen/optim/ema.h"
#include "reigen/optim/grad_scaler.h"

namespace reigen::optim {
namespace {

using namespace testing_parameters;

const bool kHidden = [] {
  reigen::testing::stand_in::hide_memory();
  reigen::testing::stand_in::be_lazy();
  return true;
}();

const at::Device kGpu(at::kCUDA, 1);

// The same parameters on the host and on the GPU.
struct Twins {
  explicit Twins(at::ScalarType type, const Shapes& shapes)
      : host(make_parameters(type, shapes)),
        gpu(make_parameters(type, shapes, kGpu)),
        of_host(host, Communicator()),
        of_gpu(gpu, Communicator()) {}

  void set_gradients(int step, bool skip_some, double scale = 1) {
    testing_parameters::set_gradients(step, tensors(host), {}, skip_some, scale);
    for (std::size_t i = 0; i < host.size(); ++i) {
      const at::Tensor& gradient = host[i].parameter.grad();
      gpu[i].parameter.mutable_grad() = gradient.defined() ? gradient.to(kGpu) : at::Tensor();
    }
  }
  void expect_same(const std::string& what) const {
    for (std::size_t i = 0; i < host.size(); ++i) {
      EXPECT_EQ(gpu[i].parameter.device(), kGpu);
      EXPECT_TRUE(at::equal(gpu[i].parameter.detach().cpu(), host[i].parameter.detach())) << what << ", " << i;
    }
  }

  std::vector<tensor::NamedParameter> host;
  std::vector<tensor::NamedParameter> gpu;
  tensor::FlatParameters of_host;
  tensor::FlatParameters of_gpu;
};

void expect_same(const std::vector<tensor::NamedTensor>& gpu, const std::vector<tensor::NamedTensor>& host,
                 const std::string& what) {
  ASSERT_EQ(gpu.size(), host.size());
  for (std::size_t i = 0; i < host.size(); ++i) {
    EXPECT_EQ(gpu[i].name, host[i].name);
    EXPECT_TRUE(at::equal(gpu[i].tensor.cpu(), host[i].tensor)) << what << ", " << host[i].name;
  }
}

TEST(DeviceOptimizers, GiveTheBitsOfTheHost) {
  ASSERT_TRUE(kHidden);
  for (const Maker& maker : every_optimizer()) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      if (maker.bf16_states && type != at::kFloat) continue;
      for (const Shapes* shapes : {&kShapes, &kLargeShapes}) {
        const std::string what = maker.name + ", " + c10::toString(type);
        Twins twins(type, *shapes);
        const auto on_host = maker.make(twins.of_host.ranges());
        const auto on_gpu = maker.make(twins.of_gpu.ranges());
        for (int step = 0; step < 4; ++step) {
          twins.set_gradients(step, /*skip_some=*/true);
          const StepOptions how{.gradient_factor = step == 1 ? 0.5 : 1, .gradient_limit = step == 2 ? 0.25 : 1e9};
          on_host->step(how);
          on_gpu->step(how);
        }
        twins.expect_same(what);
        expect_same(on_gpu->state(), on_host->state(), what);
      }
    }
  }
}

TEST(DeviceOptimizers, KeepFp32MastersOf16Bits) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    Twins twins(type, kLargeShapes);
    const AdamWOptions options{.lr = 0.01, .master_weights = true};
    AdamW on_host(twins.of_host.ranges(), options);
    AdamW on_gpu(twins.of_gpu.ranges(), options);
    for (int step = 0; step < 4; ++step) {
      twins.set_gradients(step, false);
      on_host.step();
      on_gpu.step();
    }
    twins.expect_same(c10::toString(type));
    expect_same(on_gpu.state(), on_host.state(), c10::toString(type));
  }
}

TEST(DeviceOptimizers, TakeTheStateOfTheHostAndGoOn) {
  Twins twins(at::kFloat, kShapes);
  AdamW on_host(twins.of_host.ranges(), AdamWOptions{});
  AdamW on_gpu(twins.of_gpu.ranges(), AdamWOptions{});
  twins.set_gradients(0, false);
  on_host.step();
  on_gpu.load_state(on_host.state(), on_host.steps());
  for (std::size_t i = 0; i < twins.host.size(); ++i) {
    at::NoGradGuard no_grad;
    twins.gpu[i].parameter.copy_(twins.host[i].parameter);
  }
  twins.set_gradients(1, false);
  on_host.step();
  on_gpu.step();
  twins.expect_same("after loading");
}

TEST(DeviceOptimizers, RefuseRangesOnSeveralDevices) {
  Twins twins(at::kFloat, kShapes);
  std::vector<ParameterRange> both = twins.of_host.ranges();
  both.push_back(twins.of_gpu.ranges().front());
  EXPECT_THROW(AdamW(both, AdamWOptions{}), InvalidArgument);
  EXPECT_THROW(gradient_norm(both), InvalidArgument);
}

TEST(DeviceGradients, HaveTheNormOfTheHostAndAreClippedAlike) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    Twins twins(type, kLargeShapes);
    twins.set_gradients(3, /*skip_some=*/true);
    EXPECT_EQ(gradient_norm(twins.of_gpu.ranges()).sum_of_squares,
              gradient_norm(twins.of_host.ranges()).sum_of_squares);
    clip_grad_norm(twins.of_host.ranges(), 0.5);
    clip_grad_norm(twins.of_gpu.ranges(), 0.5);
    clip_grad_value(twins.of_host.ranges(), 1e-3);
    clip_grad_value(twins.of_gpu.ranges(), 1e-3);
    for (std::size_t i = 0; i < twins.host.size(); ++i) {
      const at::Tensor& expected = twins.host[i].parameter.grad();
      const at::Tensor& got = twins.gpu[i].parameter.grad();
      ASSERT_EQ(got.defined(), expected.defined());
      if (!got.defined()) continue;
      EXPECT_TRUE(at::equal(got.cpu(), expected)) << c10::toString(type) << ", " << i;
    }
  }
}

TEST(DeviceGradients, ThatAreNotFiniteAreSeen) {
  for (const bool finite : {true, false}) {
    Twins twins(at::kFloat, kShapes);
    SGD on_gpu(twins.of_gpu.ranges(), SGDOptions{.lr = 0.1});
    twins.set_gradients(0, false);
    if (!finite) twins.gpu[3].parameter.mutable_grad()[5][1] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(gradient_norm(twins.of_gpu.ranges()).finite, finite);
    on_gpu.step({.check_finite = true});
    EXPECT_EQ(on_gpu.was_finite(), finite);
  }
}

TEST(DeviceGradients, ThatOverflowLowerTheLossScale) {
  Twins twins(at::kFloat, kShapes);
  SGD on_gpu(twins.of_gpu.ranges(), SGDOptions{.lr = 0.1});
  GradScaler scaler({.init_scale = 8});
  twins.set_gradients(0, false);
  twins.gpu[0].parameter.mutable_grad()[0][0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(scaler.step(on_gpu, twins.of_gpu.ranges(), {}));
  twins.set_gradients(0, false);
  EXPECT_TRUE(scaler.step(on_gpu, twins.of_gpu.ranges(), {.max_norm = 1}));
}

TEST(DeviceAverage, HasTheBitsOfTheHost) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    Twins twins(type, kLargeShapes);
    SGD on_host(twins.of_host.ranges(), SGDOptions{.lr = 0.1});
    SGD on_gpu(twins.of_gpu.ranges(), SGDOptions{.lr = 0.1});
    ExponentialMovingAverage of_host(twins.of_host.ranges(), {.decay = 0.9});
    ExponentialMovingAverage of_gpu(twins.of_gpu.ranges(), {.decay = 0.9});
    for (int step = 0; step < 3; ++step) {
      twins.set_gradients(step, false);
      on_host.step();
      on_gpu.step();
      of_host.update();
      of_gpu.update();
    }
    expect_same(of_gpu.state(), of_host.state(), c10::toString(type));
    auto swapped_host = of_host.swap_in();
    auto swapped_gpu = of_gpu.swap_in();
    twins.expect_same("swapped in");
    swapped_host.end();
    swapped_gpu.end();
    twins.expect_same("swapped out");
  }
}

}  // namespace
}  // namespace reigen::optim
