// A loader that copies batches to a GPU in advance. LibTorch's device and CUDA are the stand-ins of tests/fakes/.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "fakes/cuda/device.h"
#include "fakes/cuda/stand_in.h"
#include "reigen/data/loader.h"

namespace reigen::data {
namespace {

namespace stand_in = reigen::testing::stand_in;

const at::Device kGpu(at::kCUDA, 3);

DatasetPtr numbers(std::int64_t size) {
  const at::Tensor target = at::arange(size, at::kLong);
  return in_memory(at::stack({target.to(at::kFloat), target.to(at::kFloat) + 0.5}, 1), target, "numbers");
}

class DeviceLoader : public ::testing::Test {
 protected:
  DeviceLoader() {
    stand_in::hide_memory();
    stand_in::be_lazy();
  }
  // The current stream of the test's GPU.
  static cudaStream_t stream() {
    const c10::impl::VirtualGuardImpl gpus(at::kCUDA);
    return static_cast<cudaStream_t>(gpus.getStreamNativeHandle(gpus.getStream(kGpu)));
  }
  const c10::StreamGuard guard_{c10::impl::VirtualGuardImpl(at::kCUDA).getNewStream(kGpu)};
};

TEST_F(DeviceLoader, GivesTheBatchesOfTheHostInMemoryOfTheGpu) {
  for (const int ahead : {0, 1, 3}) {
    for (const int workers : {0, 2}) {
      LoaderOptions options{.batch_size = 5, .shuffle = true, .micro_batch = 2, .workers = workers, .pin_memory = true};
      const Loader host(numbers(23), options);
      options.device = kGpu;
      options.device_prefetch = ahead;
      const Loader gpu(numbers(23), options);
      for (const std::int64_t start : {0, 5}) {
        Epoch expected = host.epoch(1, start);
        Epoch got = gpu.epoch(1, start);
        while (const Batch* here = expected.next()) {
          const Batch* there = got.next();
          ASSERT_NE(there, nullptr);
          EXPECT_EQ(there->position, here->position);
          EXPECT_EQ(there->input.device(), kGpu);
          EXPECT_TRUE(at::equal(there->input.cpu(), here->input));
          ASSERT_EQ(there->parts.size(), here->parts.size());
          for (std::size_t i = 0; i < here->parts.size(); ++i) {
            EXPECT_EQ(there->parts[i].weight, here->parts[i].weight);
            EXPECT_TRUE(at::equal(there->parts[i].input.cpu(), here->parts[i].input));
            EXPECT_TRUE(at::equal(there->parts[i].target.cpu(), here->parts[i].target));
          }
        }
        EXPECT_EQ(got.next(), nullptr);
      }
    }
  }
}

// A kernel on the current stream begins late. The memory of its batch is not overwritten before, although the batch is
// dropped and other batches are copied meanwhile.
TEST_F(DeviceLoader, ADroppedBatchIsKeptUntilTheStreamHasUsedIt) {
  const Loader loader(numbers(64), {.batch_size = 4, .workers = 1, .pin_memory = true, .device = kGpu});
  const c10::DeviceGuard on(kGpu);
  std::atomic<bool> may_go{false};
  std::vector<float> seen(16, -1);
  {
    Epoch epoch = loader.epoch(0);
    for (std::size_t step = 0; step < seen.size(); ++step) {
      const Batch* batch = epoch.next();
      stand_in::enqueue(stream(), [&, step, data = batch->input.const_data_ptr()] {
        may_go.wait(false);
        seen[step] = reinterpret_cast<const float*>(stand_in::reach(data))[0];
      });
    }
  }
  // A lazy stream begins by itself after 5 ms. So copies that do not wait for the kernels are made by now.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  may_go = true;
  may_go.notify_all();
  ASSERT_EQ(cudaStreamSynchronize(stream()), cudaSuccess);
  for (std::size_t step = 0; step < seen.size(); ++step) EXPECT_EQ(seen[step], 4.0F * static_cast<float>(step));
}

TEST_F(DeviceLoader, TheHostWaitsForNothing) {
  const Loader loader(numbers(64), {.batch_size = 4, .workers = 1, .pin_memory = true, .device = kGpu});
  Epoch epoch = loader.epoch(0);
  const std::int64_t waits = stand_in::counts(kGpu.index()).waits;
  int batches = 0;
  while (epoch.next() != nullptr) ++batches;
  EXPECT_EQ(batches, 16);
  EXPECT_EQ(stand_in::counts(kGpu.index()).waits, waits);
}

}  // namespace
}  // namespace reigen::data
