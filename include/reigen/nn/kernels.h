// The option of a model that says which operations compute its layers.
// Thread rule: no shared state.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace reigen::nn {

enum class Kernels : std::uint8_t {
  kAuto,   // kFused on a GPU, kTorch on the CPU
  kFused,  // Reigen's: norm.h, batch_norm.h, activations.h, embedding.h, cross_entropy.h
  kTorch,  // LibTorch's
};

// Whether a model with this option uses Reigen's operations for tensors on this device.
inline bool are_fused(Kernels kernels, const c10::Device& device) {
  return kernels == Kernels::kFused || (kernels == Kernels::kAuto && device.is_cuda());
}

}  // namespace reigen::nn
