#include "train/model/device.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "base/log.h"
#include "config/checks.h"
#include "device/cuda.h"
#include "device/kernels.h"
#include "reigen/base/error.h"
#include "tensor/device_memory/device_memory.h"
#include "tensor/gpu/torch_cuda.h"
#include "train/run/agree.h"

namespace reigen::train {

namespace {

// LibTorch's library for CUDA is opened first, because Reigen uses the CUDA runtime that this library loads.
bool can_use_gpu() {
  try {
    tensor::open_torch_cuda();
    static_cast<void>(device::kernels());
    return device::has_gpu();
  } catch (const BackendError& error) {
    base::log_info("train.device auto takes the cpu: {}", error.what());
    return false;
  }
}

}  // namespace

TrainConfig with_device_chosen(TrainConfig config) {
  if (!config::device_of(config)) config.device = can_use_gpu() ? "cuda" : "cpu";
  return config;
}

at::Device device_of(const TrainConfig& config, const Communicator& world) {
  const Device carried = world.device();
  const Device wanted = config::device_of(config).value_or(carried);
  if (wanted.is_cpu()) return at::kCPU;
  if (carried.is_cpu() || (wanted.index >= 0 && wanted.index != carried.index)) {
    throw common(InvalidArgument(
        Report{.what = fmt::format("train.device {}: the ranks' group does not carry this GPU", to_string(wanted)),
               .got = "a group that carries the memory of " + to_string(carried),
               .expected = to_string(wanted),
               .fix = "choose one of the visible GPUs (reigen devices), or leave train.device out; a program of your "
                      "own makes the group with init({.device = ...})"}));
  }
  tensor::open_torch_cuda();
  together(world, "device", [&] { device::require_usable(carried.index, config.precision == "bf16"); });
  return {at::kCUDA, static_cast<c10::DeviceIndex>(carried.index)};
}

Arithmetic::Modes Arithmetic::now() {
  const at::Context& context = at::globalContext();
  return {.tf32_products = context.allowTF32CuBLAS(),
          .tf32_convolutions = context.allowTF32CuDNN(),
          .deterministic = context.deterministicAlgorithms(),
          .deterministic_cudnn = context.deterministicCuDNN(),
          .benchmark_cudnn = context.benchmarkCuDNN()};
}

void Arithmetic::set(const Modes& modes) {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(modes.tf32_products);
  context.setAllowTF32CuDNN(modes.tf32_convolutions);
  context.setDeterministicAlgorithms(modes.deterministic, /*warn_only=*/false);
  context.setDeterministicCuDNN(modes.deterministic_cudnn);
  context.setBenchmarkCuDNN(modes.benchmark_cudnn);
}

// The runs whose modes hold now. LibTorch has one set of modes for the process, and ranks may be threads.
struct Arithmetic::Users {
  std::mutex mutex;
  int count = 0;
  Modes before;  // the first user
};

Arithmetic::Users& Arithmetic::users() {
  static Users all;
  return all;
}

Arithmetic::Arithmetic(const TrainConfig& config, const at::Device& device)
    : changes_modes_(device.is_cuda() || config.deterministic) {
  if (!changes_modes_) return;
  const std::lock_guard lock(users().mutex);
  if (users().count++ > 0) return;
  Modes modes = users().before = now();
  if (device.is_cuda()) modes.tf32_products = modes.tf32_convolutions = config.tf32;
  if (config.deterministic) {
    modes.deterministic = modes.deterministic_cudnn = true;
    modes.benchmark_cudnn = false;
  }
  set(modes);
}

Arithmetic::~Arithmetic() {
  if (!changes_modes_) return;
  const std::lock_guard lock(users().mutex);
  if (--users().count == 0) set(users().before);
}

void prepare_environment(const TrainConfig& config) {
  if (config.deterministic) ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

base::AvailableMemory available_on(const at::Device& device) {
  if (device.is_cpu()) return base::available_memory();
  base::AvailableMemory there = device::available_memory(device.index());
  // LibTorch hands out the memory that it keeps for later tensors before it asks the driver for more, or gives it back.
  if (const auto kept = tensor::device_memory(device))
    there.bytes +=
        static_cast<std::uint64_t>(std::max<std::int64_t>(kept->reserved - kept->allocated - kept->fragmented, 0));
  return there;
}

data::Samples samples_on(const at::Device& device, data::Samples samples) {
  if (device.is_cuda()) samples.transform([&](const at::Tensor& one) { return one.to(device, /*non_blocking=*/true); });
  return samples;
}

}  // namespace reigen::train
