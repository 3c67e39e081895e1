// The random numbers of CUDA devices in a second forward, on machines without such a device. CPU generators stand in
// for those of the devices, and tensors without memory for tensors on the devices.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "harness/torch.h"
#include "reigen/nn/activation_checkpoint.h"

namespace reigen::testing::cuda_generator_test {
namespace {

struct StandInHooks : at::CUDAHooksInterface {
  void init() const override {}
  const at::Generator& getDefaultGenerator(at::DeviceIndex device) const override {
    static const std::array kGenerators{at::detail::createCPUGenerator(1), at::detail::createCPUGenerator(2)};
    return kGenerators.at(static_cast<std::size_t>(device));
  }
};

// Registers the hooks before any code asks LibTorch for them, unless LibTorch has the real ones.
const bool kStandsIn = [] {
  if (at::CUDAHooksRegistry()->Has("CUDAHooks")) return false;
  at::CUDAHooksRegistry()->Register("CUDAHooks", [](at::CUDAHooksArgs) -> std::unique_ptr<at::CUDAHooksInterface> {
    return std::make_unique<StandInHooks>();
  });
  return true;
}();

at::Tensor empty_on(at::Device device) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, at::DataPtr(nullptr, device), nullptr, /*resizable=*/false);
  return at::detail::make_tensor<at::TensorImpl>(std::move(storage), at::DispatchKeySet(at::DispatchKey::CUDA),
                                                 caffe2::TypeMeta::Make<float>());
}

at::Tensor drawn_on(at::Device device) {
  return at::empty({16}, at::kDouble).uniform_(0, 1, at::Generator(at::globalContext().defaultGenerator(device)));
}

TEST(CudaGenerators, SecondForwardsDrawTheSameNumbers) {
  if (!kStandsIn) GTEST_SKIP() << "this LibTorch has CUDA";
  const at::Device first(at::kCUDA, 0);
  const at::Device second(at::kCUDA, 1);
  std::vector<at::Tensor> drawn;
  const nn::Unit unit("draws", std::make_shared<torch::nn::IdentityImpl>(), [&](const nn::Carry& input) {
    drawn.push_back(at::cat({drawn_on(first), drawn_on(second), at::empty({16}, at::kDouble).uniform_()}));
    return nn::Carry{input[0] * drawn.back()};
  });
  const auto checkpoint = nn::activation_checkpoint({unit});
  at::Tensor x = at::ones({48}, at::kDouble).requires_grad_();
  const at::Tensor loss = nn::call(unit, {x, empty_on(second), empty_on(first), empty_on(second)})[0].sum();
  const auto states = [&] {
    return std::array{at::globalContext().defaultGenerator(first).get_state(),
                      at::globalContext().defaultGenerator(second).get_state()};
  };
  static_cast<void>(drawn_on(first));
  const auto before = states();
  loss.backward();
  EXPECT_TRUE(drawn.at(0).equal(drawn.at(1)));
  EXPECT_TRUE(x.grad().equal(drawn[0]));
  const auto after = states();
  EXPECT_TRUE(before[0].equal(after[0]));
  EXPECT_TRUE(before[1].equal(after[1]));
}

}  // namespace
}  // namespace reigen::testing::cuda_generator_test
