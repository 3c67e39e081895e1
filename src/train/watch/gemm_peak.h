// Measures how fast the ranks of a run compute products of matrices.
// Thread rule: used only by the thread of its rank.
#pragma once

#include <ATen/core/ScalarType.h>
#include <c10/core/Device.h>

#include "reigen/comm/communicator.h"

namespace reigen::train {

// The floating-point operations per second of all ranks together, in products of large square matrices of this type on
// this device. The ranks measure at the same time, because they may share processors or a GPU. Every rank gets the same
// number. Collective and blocking; takes less than a second on most machines.
double measure_gemm_peak(const Communicator& world, const at::Device& device, at::ScalarType type);

}  // namespace reigen::train
