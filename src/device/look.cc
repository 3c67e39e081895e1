#include "device/look.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "base/machine/mps.h"
#include "device/cuda.h"
#include "device/kernels.h"
#include "reigen/base/error.h"

namespace reigen::device {

namespace {

// Runs `ask`. If `ask` throws, because a library is missing or too old, adds the error's text to `found.missing`.
void note_missing(Found& found, const std::function<void()>& ask) {
  try {
    ask();
  } catch (const Error& error) {
    found.missing.emplace_back(error.what());
  }
}

Gpu gpu_at(int index, int count) {
  Gpu gpu{.index = index};
  std::array<char, 256> text{};
  check(cuda_driver().device_get_name(text.data(), static_cast<int>(text.size()), index), "cuDeviceGetName");
  gpu.name = text.data();
  gpu.bus = bus_of(index);
  std::size_t bytes = 0;
  check(cuda_driver().device_total_memory(&bytes, index), "cuDeviceTotalMem");
  gpu.bytes = bytes;
  gpu.capability =
      fmt::format("{}.{}", attribute_of(index, kCudaCapabilityMajor), attribute_of(index, kCudaCapabilityMinor));
  gpu.processors = attribute_of(index, kCudaProcessors);
  const int mode = attribute_of(index, kCudaComputeMode);
  gpu.mode = mode == kCudaProhibited ? "prohibited" : mode == kCudaExclusive ? "one process at a time" : "shared";
  for (int other = 0; other < count; ++other) {
    int reaches = 0;
    if (other == index) continue;
    check(cuda_runtime().device_can_access_peer(&reaches, index, other), "cudaDeviceCanAccessPeer");
    if (reaches != 0) gpu.reaches.push_back(other);
  }
  return gpu;
}

void ask_gpus(Found& found) {
  int count = 0;
  const int code = cuda_runtime().get_device_count(&count);
  if (code != kCudaSuccess || count == 0) {
    throw BackendError(no_gpu(code, "look at nvidia-smi; in a container, start it with --gpus all"));
  }
  for (int index = 0; index < count; ++index) found.gpus.push_back(gpu_at(index, count));
  const bool usable =
      std::any_of(found.gpus.begin(), found.gpus.end(), [](const Gpu& gpu) { return gpu.mode != "prohibited"; });
  if (!usable) {
    throw BackendError(Report{.what = "no process may use a GPU",
                              .got = "compute mode prohibited",
                              .fix = "sudo nvidia-smi --compute-mode=DEFAULT"});
  }
}

}  // namespace

Found look() {
  Found found;
  note_missing(found, [&] {
    int number = 0;
    check(cuda_runtime().runtime_get_version(&number), "cudaRuntimeGetVersion");
    found.runtime = version_text(number);
  });
  if (found.runtime.empty()) return found;
  note_missing(found, [&] {
    (void)cuda_driver();
    int number = 0;
    check(cuda_runtime().driver_get_version(&number), "cudaDriverGetVersion");
    found.driver = version_text(number);
  });
  if (!found.driver.empty()) note_missing(found, [&] { ask_gpus(found); });
  note_missing(found, [&] { found.kernels = kernels_path(); });
  found.has_mps = base::mps_daemon_listens(base::mps_folder());
  return found;
}

}  // namespace reigen::device
