#include "tensor/gpu/shared_gpu.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "reigen/tensor/gpu_work.h"
#include "tensor/gpu/torch_cuda.h"
#include "tensor/hooks/thread_engine.h"

namespace reigen::tensor {

namespace {

// Where a rank's GPU work runs.
struct GpuPlace {
  std::uint64_t process = 0;
  std::int32_t gpu = -1;  // -1 means that the rank uses no GPU
  std::int32_t is_separate = 0;

  bool meets(const GpuPlace& other) const { return gpu >= 0 && gpu == other.gpu && process == other.process; }
};

// The GPUs on which this thread has a stream of its own.
thread_local std::set<int> separate_gpus;

std::vector<GpuPlace> places_of(const Communicator& ranks, int gpu) {
  static const std::uint64_t kProcess =
      (static_cast<std::uint64_t>(std::random_device()()) << 32) | std::random_device()();
  const GpuPlace mine{.process = kProcess, .gpu = gpu, .is_separate = separate_gpus.contains(gpu) ? 1 : 0};
  std::vector<GpuPlace> places(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(&mine, places.data(), sizeof(GpuPlace), DataType::kUint8, {.tag = "places of GPU work"});
  return places;
}

}  // namespace

std::optional<std::pair<int, int>> ranks_on_one_backward_thread(const at::Device& device, const Communicator& ranks) {
  const std::vector<GpuPlace> places = places_of(ranks, device.is_cuda() ? device.index() : -1);
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const bool are_separate = places[i].is_separate != 0 && places[j].is_separate != 0;
      if (places[i].meets(places[j]) && !are_separate) return std::pair(static_cast<int>(j), static_cast<int>(i));
    }
  }
  return std::nullopt;
}

void separate_gpu_work(const Communicator& ranks) {
  const Device gpu = ranks.device();
  const std::vector<GpuPlace> places = places_of(ranks, gpu.is_cpu() ? -1 : gpu.index);
  const GpuPlace& mine = places[static_cast<std::size_t>(ranks.rank())];
  const auto meeting =
      std::count_if(places.begin(), places.end(), [&](const GpuPlace& one) { return one.meets(mine); });
  if (meeting < 2 || !separate_gpus.insert(gpu.index).second) return;
  open_torch_cuda();
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(gpu.index));
  const c10::impl::VirtualGuardImpl gpus(at::kCUDA);
  const c10::Stream own = gpus.getNewStream(device);
  c10::Event before(at::kCUDA);
  before.record(gpus.getStream(device));
  before.block(own);
  gpus.exchangeStream(own);
  use_own_engine();
}

}  // namespace reigen::tensor
