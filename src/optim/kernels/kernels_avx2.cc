#include <cstdint>

#include "optim/kernels/kernels.h"

namespace reigen::optim::kernels::avx2 {

// The linker must not merge one template compiled with different flags, so each instruction set has its own namespace.
#include "optim/kernels/kernels.inl"

const Kernels& kernels() {
  static constexpr Kernels kTable = table("avx2");
  return kTable;
}

}  // namespace reigen::optim::kernels::avx2
