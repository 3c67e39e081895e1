#include <cstring>

#include "optim/kernels/kernels.h"

namespace reigen::optim::kernels {

namespace {

bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool has_avx2() { return __builtin_cpu_supports("avx2"); }

const Kernels& choose() {
  if (has_avx512()) return avx512::kernels();
  if (has_avx2()) return avx2::kernels();
  return portable::kernels();
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& kChoice = choose();
  return kChoice;
}

const Kernels* kernels_for_test(const char* name) {
  if (std::strcmp(name, "portable") == 0) return &portable::kernels();
  if (std::strcmp(name, "avx2") == 0 && has_avx2()) return &avx2::kernels();
  if (std::strcmp(name, "avx512") == 0 && has_avx512()) return &avx512::kernels();
  return nullptr;
}

}  // namespace reigen::optim::kernels
