#include <cstring>

#include "comm/reduce/reduce.h"

namespace reigen::comm::reduce {

// Every aarch64 processor has NEON.
void run(const Pass& pass) { neon::run(pass); }

const char* instruction_set() { return "neon"; }

Kernel kernel_for_test(const char* name) {
  if (std::strcmp(name, "portable") == 0) return &portable::run;
  return std::strcmp(name, "neon") == 0 ? &neon::run : nullptr;
}

}  // namespace reigen::comm::reduce
