// Measures how fast the ranks compute products of matrices: what the model FLOPs utilisation (MFU) of a training is
// compared with.
//
//   const double peak = reigen::train::measure_gemm_peak(world, at::kCPU, at::kFloat);
//   const double mfu = models::training_flops(sizes, positions) * sequences_per_second / peak;
//
// Thread rule: each rank calls it on the thread that trains.
#pragma once

#include <ATen/core/ScalarType.h>
#include <c10/core/Device.h>

#include "reigen/comm/communicator.h"

namespace reigen::train {

// The floating-point operations per second of all ranks together, in products of large square matrices of this type on
// this device. The ranks measure at the same time, because they may share processors or a GPU. Every rank gets the same
// number: 0 if a rank has no memory for the matrices. Collective and blocking; takes a tenth of a second on a CPU, and
// up to a second on a GPU.
double measure_gemm_peak(const Communicator& world, const at::Device& device, at::ScalarType type);

}  // namespace reigen::train
