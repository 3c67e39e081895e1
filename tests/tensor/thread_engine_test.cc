// Backward threads of a device that has no kernels: its tensors have no memory, and its functions only note the thread.
#include "tensor/hooks/thread_engine.h"

#include <ATen/ATen.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <thread>

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(FPGA, NoOpDeviceGuardImpl<DeviceType::FPGA>)
}  // namespace c10::impl

namespace reigen::tensor {
namespace thread_engine_test {
namespace {

struct Ran {
  std::thread::id thread;
  bool has_own_engine = false;
};

struct Note final : torch::autograd::Node {
  explicit Note(Ran& noted) : run(noted) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override {
    run = {std::this_thread::get_id(), tensor::has_own_engine()};
    return {};
  }
  Ran& run;
};

// Runs a backward of one function on the device, and says where it ran.
Ran backward() {
  Ran run;
  const auto gradient = at::detail::make_tensor<c10::TensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::FPGA), caffe2::TypeMeta::Make<float>(), c10::Device(c10::kFPGA, 0));
  const auto function = std::make_shared<Note>(run);
  const std::uint32_t input = function->add_input_metadata(gradient);
  torch::autograd::Engine::get_default_engine().execute({{function, input}}, {gradient}, false, false, true);
  return run;
}

TEST(ThreadEngine, AThreadWithAnEngineOfItsOwnHasBackwardThreadsOfItsOwn) {
  Ran first;
  Ran again;
  Ran other;
  const auto with_own_engine = [](Ran& run) {
    use_own_engine();
    use_own_engine();
    EXPECT_TRUE(has_own_engine());
    run = backward();
    EXPECT_NE(run.thread, std::this_thread::get_id());
  };
  std::thread second([&] {
    std::thread([&] { with_own_engine(other); }).join();
    with_own_engine(first);
    again = backward();
  });
  second.join();
  const Ran usual = backward();
  EXPECT_TRUE(first.has_own_engine && again.has_own_engine && other.has_own_engine);
  EXPECT_EQ(first.thread, again.thread);
  EXPECT_FALSE(usual.has_own_engine);
  EXPECT_NE(usual.thread, std::this_thread::get_id());
  EXPECT_EQ(usual.thread, backward().thread);
  EXPECT_FALSE(has_own_engine());
}

TEST(ThreadEngine, ABackwardOnTheCpuRunsOnItsThread) {
  std::thread([] {
    use_own_engine();
    const at::Tensor weight = at::full({3}, 2.0).requires_grad_();
    std::thread::id thread;
    weight.register_hook([&](const at::Tensor&) { thread = std::this_thread::get_id(); });
    weight.mul(4).sum().backward();
    EXPECT_EQ(thread, std::this_thread::get_id());
    EXPECT_TRUE(at::equal(weight.grad(), at::full({3}, 4.0)));
  }).join();
}

}  // namespace
}  // namespace thread_engine_test
}  // namespace reigen::tensor
