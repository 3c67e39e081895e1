#include <cstdint>

#include "optim/kernels/kernels.h"

namespace reigen::optim::kernels::portable {

// The linker must not merge one template compiled with different flags, so each instruction set has its own namespace.
#include "optim/kernels/kernels.inl"

const Kernels& kernels() {
  static constexpr Kernels kTable = table("portable");
  return kTable;
}

}  // namespace reigen::optim::kernels::portable
