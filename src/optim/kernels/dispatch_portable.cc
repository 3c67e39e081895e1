#include <cstring>

#include "optim/kernels/kernels.h"

namespace reigen::optim::kernels {

// On aarch64 there is nothing to choose: every such processor has NEON, for which the compiler vectorises the portable
// loops.
const Kernels& kernels() { return portable::kernels(); }

const Kernels* kernels_for_test(const char* name) {
  return std::strcmp(name, "portable") == 0 ? &portable::kernels() : nullptr;
}

}  // namespace reigen::optim::kernels
