// Memory, streams and copies of a device, over the stand-in for CUDA.
#include "device/cuda.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "fakes/cuda/stand_in.h"

namespace reigen::device {
namespace {

namespace stand_in = reigen::testing::stand_in;

TEST(Cuda, ARankTakesTheDeviceThatIsNamedOrItsTurn) {
  EXPECT_EQ(choose_cuda(3, 0), 3);
  EXPECT_EQ(choose_cuda(stand_in::kDevices + 2, 0), 2);  // a scheduler may show each rank one device, as number 0
  EXPECT_EQ(choose_cuda(-1, 5), 5);
  EXPECT_EQ(choose_cuda(-1, stand_in::kDevices + 1), 1);
}

TEST(Cuda, CopiesGoFromAnywhereToAnywhere) {
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{3'000'000}}) {
    const std::size_t bytes = count * sizeof(float);
    const std::vector<float> out(count, 1.5F);
    std::vector<float> in(count, -1);
    const auto first = allocate(2, bytes);
    const auto second = allocate(2, bytes);
    EXPECT_EQ(device_of(first.get()), Device::cuda(2));
    copy(first.get(), out.data(), bytes);
    copy(second.get(), first.get(), bytes);
    copy(in.data(), second.get(), bytes);
    EXPECT_EQ(in, out);
  }
  float host = 0;
  const float one = 1;
  copy(&host, &one, sizeof(float));
  EXPECT_EQ(host, 1);
  EXPECT_EQ(device_of(&host), Device::cpu());
}

TEST(Cuda, ACopyComesAfterWhatTheDefaultStreamHasToDo) {
  stand_in::use_device_of(0);
  const auto block = allocate(0, sizeof(float));
  auto* const value = static_cast<float*>(block.get());
  std::atomic<bool> begun{false};
  stand_in::enqueue(cudaStreamLegacy, [&] { begun.wait(false); });
  stand_in::enqueue(cudaStreamLegacy, [&] { *value = 7; });
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    begun.store(true);
    begun.notify_all();
  });
  float seen = 0;
  copy(&seen, value, sizeof(float));
  later.join();
  EXPECT_EQ(seen, 7);
}

}  // namespace
}  // namespace reigen::device
