#include <cstdint>

#include "optim/kernels/kernels.h"

namespace reigen::optim::kernels::avx512 {

// The linker must not merge one template compiled with different flags, so each instruction set has its own namespace.
#include "optim/kernels/kernels.inl"

const Kernels& kernels() {
  static constexpr Kernels kTable = table("avx512");
  return kTable;
}

}  // namespace reigen::optim::kernels::avx512
