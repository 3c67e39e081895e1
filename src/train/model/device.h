// The device on which a rank of a run computes.
// Thread rule: no shared state.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>

#include <optional>

#include "base/machine/available_memory.h"
#include "reigen/comm/communicator.h"
#include "reigen/data/dataset.h"
#include "reigen/train/config.h"

namespace reigen::train {

// If train.device is "auto", replaces it by the device that this rank takes: "cuda" if LibTorch's library for CUDA,
// Reigen's kernels and a GPU are there, else "cpu". Other options do not change.
TrainConfig with_device_chosen(TrainConfig config);

// Collective. Returns the device on which this rank computes: the CPU, or the GPU of the rank's group
// (Communicator::device()). train.device decides which; with "auto" it is the device of the group. Throws
// InvalidArgument (exit code 78, is_common()) if train.device asks for a GPU and the group has none or a different one,
// BackendError if LibTorch's library for CUDA cannot be opened, and the errors of device::require_usable().
at::Device device_of(const TrainConfig& config, const Communicator& world);

// While it lives, LibTorch's modes for arithmetic are as train.tf32 and train.deterministic say. On the CPU train.tf32
// has no effect. The modes hold for the whole process: if ranks are threads, the first Arithmetic sets them and the
// last one sets them back.
class Arithmetic {
 public:
  Arithmetic(const TrainConfig& config, const at::Device& device);
  ~Arithmetic();
  Arithmetic(const Arithmetic&) = delete;  // its destructor sets the modes back, which must happen once
  Arithmetic& operator=(const Arithmetic&) = delete;

 private:
  struct Modes {
    bool tf32_products = false;
    bool tf32_convolutions = false;
    bool deterministic = false;
    bool deterministic_cudnn = false;
    bool benchmark_cudnn = false;
  };
  struct Users;
  static Users& users();
  static Modes now();
  static void set(const Modes& modes);

  const bool changes_modes_;
};

// While it lives, LibTorch's current device, its stream and its modes are those of the run.
struct PlaceOfRun {
  PlaceOfRun(const TrainConfig& config, const at::Device& place, const std::optional<c10::Stream>& own_stream)
      : device(place.is_cuda() ? std::optional(place) : std::nullopt), stream(own_stream), arithmetic(config, place) {}
  c10::OptionalDeviceGuard device;
  c10::OptionalStreamGuard stream;
  Arithmetic arithmetic;
};

// cuBLAS gives the same bits in each run only with workspaces of fixed sizes, and LibTorch demands that a variable of
// the environment says so. Sets the variable if train.deterministic asks for it. Call it before the process has
// threads.
void prepare_environment(const TrainConfig& config);

// The memory that is free on the device, with what LibTorch keeps of it in this process for later tensors.
base::AvailableMemory available_on(const at::Device& device);

// Returns the samples on this device. If they must be copied from pinned memory, the host does not wait for the copy.
// The given samples may be freed before the copy is done.
data::Samples samples_on(const at::Device& device, data::Samples samples);

}  // namespace reigen::train
