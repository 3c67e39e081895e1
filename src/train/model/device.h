// The device on which a rank of a run computes.
// Thread rule: no shared state.
#pragma once

#include <c10/core/Device.h>

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

// Sets LibTorch's modes for arithmetic, which hold for the whole process, as train.tf32 and train.deterministic say. On
// the CPU train.tf32 has no effect. Call it before the first operator of the run.
void set_arithmetic(const TrainConfig& config, const at::Device& device);

// The memory that is free on the device.
base::AvailableMemory available_on(const at::Device& device);

// Returns the samples on this device. If they must be copied from pinned memory, the host does not wait for the copy.
// The given samples may be freed before the copy is done.
data::Samples samples_on(const at::Device& device, const data::Samples& samples);

}  // namespace reigen::train
