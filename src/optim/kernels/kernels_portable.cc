#include <cstdint>

#include "optim/kernels/kernels.h"

namespace reigen::optim::kernels::portable {

// Each instruction set has its own namespace. In one namespace, the linker would merge the instances of a template that
// were compiled with different flags.
#include "optim/kernels/kernels.inl"

const Kernels& kernels() {
  static constexpr Kernels kTable = table("portable");
  return kTable;
}

}  // namespace reigen::optim::kernels::portable
