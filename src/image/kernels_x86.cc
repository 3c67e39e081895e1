#include <cstring>

#include "image/kernels.h"

namespace reigen::image {

namespace {

constexpr Kernels kPortable{"portable", &portable::across, &portable::down};
constexpr Kernels kAvx2{"avx2", &avx2::across, &avx2::down};

bool has_avx2() { return __builtin_cpu_supports("avx2"); }

}  // namespace

const Kernels& kernels() {
  static const Kernels& kChosen = has_avx2() ? kAvx2 : kPortable;
  return kChosen;
}

const Kernels* kernels_for_test(const char* name) {
  if (std::strcmp(name, "portable") == 0) return &kPortable;
  if (std::strcmp(name, "avx2") == 0 && has_avx2()) return &kAvx2;
  return nullptr;
}

}  // namespace reigen::image
