// Memory, streams and copies of a device, over the stand-in for CUDA.
#include "device/cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "device/look.h"
#include "fakes/cuda/stand_in.h"
#include "reigen/base/error.h"

namespace reigen::device {
namespace {

namespace stand_in = reigen::testing::stand_in;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Cuda, ARankTakesTheDeviceThatIsNamedOrItsTurn) {
  EXPECT_EQ(choose_cuda(3, 0), 3);
  EXPECT_EQ(choose_cuda(stand_in::kDevices - 1, 0), stand_in::kDevices - 1);
  EXPECT_EQ(choose_cuda(-1, 5), 5);
  EXPECT_EQ(choose_cuda(-1, stand_in::kDevices + 1), 1);
}

TEST(Cuda, ADeviceThatIsNotVisibleIsRefused) {
  for (const char* visible : {"", "4,2"}) {
    if (*visible != 0) ::setenv("CUDA_VISIBLE_DEVICES", visible, 1);
    try {
      (void)choose_cuda(stand_in::kDevices, 0);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kConfiguration);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(fmt::format("GPU {} is not visible", stand_in::kDevices)),
                                      HasSubstr(fmt::format("{} visible GPUs", stand_in::kDevices)),
                                      HasSubstr(fmt::format("cuda:0 to cuda:{}", stand_in::kDevices - 1)),
                                      HasSubstr(*visible != 0 ? "CUDA_VISIBLE_DEVICES=\"4,2\"" : "reigen devices")));
    }
  }
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(Cuda, AnErrorSaysWhatToRun) {
  const auto text_of = [](int code) {
    try {
      check(code, "cudaStreamSynchronize");
    } catch (const BackendError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(text_of(0), "");
  for (const int fault : {700, 710, 719})
    EXPECT_THAT(text_of(fault), AllOf(HasSubstr("CUDA_LAUNCH_BLOCKING=1"), HasSubstr("compute-sanitizer")));
  EXPECT_THAT(text_of(kCudaDevicesUnavailable), AllOf(HasSubstr("--compute-mode=DEFAULT"), HasSubstr("--gpus-shared")));
  EXPECT_THAT(text_of(1), HasSubstr("nvidia-smi"));
}

std::string refusal(int ten_times, bool in_bf16) {
  stand_in::set_capability(ten_times);
  std::string text = "none";
  try {
    require_usable(1, in_bf16);
  } catch (const Error& error) {
    text = error.what();
    EXPECT_EQ(error.exit_code(), ten_times < 75 ? ExitCode::kUnavailable : ExitCode::kConfiguration);
  }
  stand_in::set_capability(90);
  return text;
}

TEST(Cuda, GpusThatAreTooOldAreRefused) {
  EXPECT_THAT(refusal(61, false), AllOf(HasSubstr("too old for Reigen's kernels"), HasSubstr("compute capability 6.1"),
                                        HasSubstr("GPU 0000:01:00.0"), HasSubstr("7.5 or newer")));
  EXPECT_EQ(refusal(75, false), "none");
  EXPECT_THAT(refusal(75, true), AllOf(HasSubstr("does not compute in bf16"), HasSubstr("train.precision fp16")));
  EXPECT_EQ(refusal(80, true), "none");
}

// In the mode "prohibited" no process may use the GPU. In the mode "exclusive" another process has it, and the first
// call that needs the GPU fails.
TEST(Cuda, GpusThatAnotherProcessHasOrThatNoneMayUseAreTold) {
  for (const int mode : {kCudaProhibited, kCudaExclusive}) {
    stand_in::set_compute_mode(mode);
    const bool is_prohibited = mode == kCudaProhibited;
    EXPECT_EQ(look().gpus.at(1).mode, is_prohibited ? "prohibited" : "one process at a time");
    std::string text;
    try {
      require_usable(1, false);
      (void)allocate(1, 64);
    } catch (const Error& error) {
      text = error.what();
      EXPECT_EQ(error.exit_code(), ExitCode::kUnavailable);
    }
    stand_in::set_compute_mode(0);
    EXPECT_THAT(text,
                AllOf(HasSubstr(is_prohibited ? "compute mode prohibited" : "in a compute mode in which one process"),
                      HasSubstr("nvidia-smi --compute-mode=DEFAULT")));
    EXPECT_NO_THROW(allocate(1, 64));
  }
}

TEST(Cuda, ADriverThatIsTooOldIsToldWithBothVersions) {
  EXPECT_THAT(no_gpu(kCudaInsufficientDriver, "update").got,
              HasSubstr("the driver runs CUDA 13.1, the runtime is 13.0"));
}

TEST(Cuda, FreeMemoryIsThatOfTheDevice) {
  const auto before = available_memory(3);
  const auto block = allocate(3, 1 << 20);
  EXPECT_EQ(before.bytes - available_memory(3).bytes, std::uint64_t{1} << 20);
  EXPECT_EQ(available_memory(4).bytes, before.bytes);
  EXPECT_NE(available_memory(4).identity, before.identity);
  EXPECT_THAT(before.source, HasSubstr("GPU 0000:03:00.0"));
  stand_in::leave_memory(1 << 20);
  EXPECT_THROW(allocate(3, 1 << 21), IoError);
  EXPECT_NO_THROW(allocate(3, 1 << 20));
  stand_in::leave_memory(stand_in::kMemory);
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
