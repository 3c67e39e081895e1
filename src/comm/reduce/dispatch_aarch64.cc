#include <cstring>

#include "comm/reduce/reduce.h"

namespace reigen::comm::reduce {

// Every aarch64 processor has NEON, so there is no choice at run time.
void run(const Pass& pass) { neon::run(pass); }

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) { neon::copy_streaming(to, from, bytes); }

const char* instruction_set() { return "neon"; }

Kernel kernel_for_test(const char* name) {
  if (std::strcmp(name, "portable") == 0) return &portable::run;
  return std::strcmp(name, "neon") == 0 ? &neon::run : nullptr;
}

Copy streaming_copy_for_test(const char* name) {
  if (std::strcmp(name, "portable") == 0) return &portable::copy_streaming;
  return std::strcmp(name, "neon") == 0 ? &neon::copy_streaming : nullptr;
}

}  // namespace reigen::comm::reduce
