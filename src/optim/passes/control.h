// Gives the kernels of a step access to DeviceNorm::values().
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "optim/kernels/kernels.h"
#include "reigen/optim/device_norm.h"

namespace reigen::optim {

inline constexpr std::int64_t kControlNumbers = 3;
static_assert(sizeof(kernels::StepControl) == kControlNumbers * sizeof(double));

// Returns null if `norm` is null. Throws InvalidArgument unless the norm is on this device.
const kernels::StepControl* control_of(const DeviceNorm* norm, const at::Device& device, const char* who);

}  // namespace reigen::optim
