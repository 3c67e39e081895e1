#include <cstdint>

#include "optim/kernels/kernels.h"

namespace reigen::optim::kernels::avx512 {

// One template compiled with different flags must not be merged by the linker: each set has its own namespace.
#include "optim/kernels/kernels.inl"

const Kernels& kernels() {
  static constexpr Kernels kTable = table("avx512");
  return kTable;
}

}  // namespace reigen::optim::kernels::avx512
