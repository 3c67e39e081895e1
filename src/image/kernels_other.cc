#include <cstring>

#include "image/kernels.h"

namespace reigen::image {

namespace {

constexpr Kernels kPortable{"portable", &portable::across, &portable::down};

}  // namespace

const Kernels& kernels() { return kPortable; }

const Kernels* kernels_for_test(const char* name) { return std::strcmp(name, "portable") == 0 ? &kPortable : nullptr; }

}  // namespace reigen::image
