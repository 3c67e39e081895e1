// The device on which a rank of a run computes.
// Thread rule: no shared state.
#pragma once

#include <c10/core/Device.h>

#include "base/machine/available_memory.h"
#include "reigen/comm/communicator.h"
#include "reigen/data/dataset.h"
#include "reigen/train/config.h"

namespace reigen::train {

// The options of a run whose train.device is "auto", with the device that this rank takes: "cuda" if LibTorch's part
// for GPUs, the kernels and a GPU are there, else "cpu". Other options do not change.
TrainConfig with_device_chosen(TrainConfig config);

// Collective. The GPU that the rank's group carries, or the CPU, as train.device says; auto: what the group carries.
// Throws InvalidArgument with exit code 78 that is_common() if train.device asks for a GPU and the group has none or
// another one, BackendError if LibTorch's part for GPUs cannot be opened, and the errors of device::require_usable().
at::Device device_of(const TrainConfig& config, const Communicator& world);

// The memory that is free on the device.
base::AvailableMemory available_on(const at::Device& device);

// The samples on this device. Samples in pinned memory are copied while the host goes on. They may be dropped at once.
data::Samples samples_on(const at::Device& device, const data::Samples& samples);

}  // namespace reigen::train
