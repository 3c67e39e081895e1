// Collectives on tensors of a GPU. LibTorch's device and CUDA are the stand-ins of tests/fakes/: an access by the host
// is SIGSEGV, and an operator that does not come after a collective on its stream sees other numbers.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "fakes/cuda/stand_in.h"
#include "harness/ranks.h"
#include "reigen/base/error.h"
#include "reigen/tensor/collectives.h"

namespace reigen::testing {
namespace {

using ::testing::HasSubstr;

const bool kHidden = [] {
  stand_in::hide_memory();
  stand_in::be_lazy();
  return true;
}();

// Each rank has a GPU of its own. LibTorch's current stream is a stream of the rank.
class DeviceCollectives : public ::testing::TestWithParam<const char*> {
 protected:
  template <class Body>
  void on_gpus(int count, const Body& body) {
    run_ranks({.ranks = count, .backend = GetParam(), .device = Device::cuda()}, [&](Rank& r) {
      const at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(r.world().device().index));
      const c10::StreamGuard guard(c10::impl::VirtualGuardImpl(at::kCUDA).getNewStream(gpu));
      body(r, gpu);
      r.world().barrier();
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, DeviceCollectives, ::testing::Values("cuda_ipc", "nccl"));

at::Tensor ramp(int rank, const at::Device& on) {
  return (at::arange(24, at::kFloat).view({6, 4}) * (rank + 1)).to(on);
}

TEST_P(DeviceCollectives, GiveWhatTheyGiveOnTheHost) {
  ASSERT_TRUE(kHidden);
  on_gpus(3, [](Rank& r, const at::Device& gpu) {
    const Communicator& world = r.world();
    const at::Tensor host = ramp(r.rank(), at::kCPU);
    const at::Tensor device = ramp(r.rank(), gpu);
    const auto expect_same = [&](const at::Tensor& on_device, const at::Tensor& on_host) {
      EXPECT_EQ(on_device.device(), gpu);
      EXPECT_TRUE(at::equal(on_device.cpu(), on_host)) << on_device.cpu() << on_host;
    };
    for (const ReduceOptions& options :
         {ReduceOptions{}, ReduceOptions{.op = ReduceOp::kAvg}, ReduceOptions{.prescale = 0.5, .postscale = 3}}) {
      expect_same(all_reduce(device, world, options), all_reduce(host, world, options));
      expect_same(reduce_scatter(device, world, options), reduce_scatter(host, world, options));
    }
    expect_same(all_reduce(device.t(), world), all_reduce(host.t(), world));
    expect_same(all_gather(device.narrow(0, 0, r.rank() + 1), world),
                all_gather(host.narrow(0, 0, r.rank() + 1), world));
    expect_same(broadcast(device, 1, world), broadcast(host, 1, world));
    const std::vector<std::int64_t> splits = {r.rank(), 2, 4 - r.rank()};
    expect_same(all_to_all(device, splits, world).tensor, all_to_all(host, splits, world).tensor);
    const auto sums = grouped_all_reduce({device, device.to(at::kDouble), device * 2, host}, world);
    const auto expected = grouped_all_reduce({host, host.to(at::kDouble), host * 2, host}, world);
    for (std::size_t i = 0; i < 3; ++i) expect_same(sums[i], expected[i]);
    EXPECT_TRUE(at::equal(sums[3], expected[3]));
    const at::Tensor in_place = device.clone();
    all_reduce_(in_place, world);
    expect_same(in_place, all_reduce(host, world));
    broadcast_(in_place.t(), 2, world);
    EXPECT_EQ(in_place.device(), gpu);
  });
}

// The result is used at once, without a wait of the host: many times, so that a missing order would show.
TEST_P(DeviceCollectives, ComeAfterWhatIsOnTheStreamAndBeforeWhatFollows) {
  on_gpus(2, [](Rank& r, const at::Device& gpu) {
    at::Tensor x = at::full({50'000}, r.rank() + 1.0, at::TensorOptions().device(gpu));
    at::Tensor expected = at::full({50'000}, 3.0);
    for (int i = 0; i < 20; ++i) {
      x = all_reduce(x, r.world()) * 0.5;  // from the first sum on equal on both ranks
    }
    EXPECT_TRUE(at::equal(x.cpu(), expected * 0.5));
  });
}

TEST_P(DeviceCollectives, HaveTheGradientsOfTheHost) {
  on_gpus(2, [](Rank& r, const at::Device& gpu) {
    const auto gradient_on = [&](const at::Device& on) {
      const at::Tensor x = ramp(r.rank(), on).requires_grad_();
      const at::Tensor weight = ramp(2 - r.rank(), on);
      const at::Tensor sum = all_reduce(x, r.world(), {.op = ReduceOp::kAvg});
      const at::Tensor all = all_gather(x.narrow(0, 0, 2 + r.rank()), r.world());
      const at::Tensor part = reduce_scatter(x, r.world());
      (sum * weight).sum().add((all * all).sum()).add((part * part).sum()).backward();
      return x.grad();
    };
    const at::Tensor on_host = gradient_on(at::kCPU);
    const at::Tensor on_gpu = gradient_on(gpu);
    EXPECT_EQ(on_gpu.device(), gpu);
    EXPECT_TRUE(at::equal(on_gpu.cpu(), on_host)) << on_gpu.cpu() << on_host;
  });
}

TEST(DeviceCollectivesRefuse, ATensorOfAnotherDeviceThanTheGroups) {
  const auto refusal = [](const at::Tensor& tensor, const Communicator& world) -> std::string {
    try {
      all_reduce(tensor, world);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no error";
  };
  run_ranks({.ranks = 2}, [&](Rank& r) {
    EXPECT_THAT(refusal(at::ones({2}, at::Device(at::kCUDA, 0)), r.world()),
                AllOf(HasSubstr("cuda:0"), HasSubstr("on the CPU"), HasSubstr("InitOptions::device")));
    r.world().barrier();
  });
  run_ranks({.ranks = 2, .backend = "cuda_ipc", .device = Device::cuda()}, [&](Rank& r) {
    EXPECT_THAT(refusal(at::ones({2}, at::Device(at::kCUDA, 5)), r.world()), HasSubstr("cuda:5"));
    r.world().barrier();
  });
}

}  // namespace
}  // namespace reigen::testing
