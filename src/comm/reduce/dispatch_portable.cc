#include <cstring>

#include "comm/reduce/reduce.h"

namespace reigen::comm::reduce {

void run(const Pass& pass) { portable::run(pass); }

void copy_streaming(std::byte* to, const std::byte* from, std::size_t bytes) {
  portable::copy_streaming(to, from, bytes);
}

const char* instruction_set() { return "portable"; }

Kernel kernel_for_test(const char* name) { return std::strcmp(name, "portable") == 0 ? &portable::run : nullptr; }

Copy streaming_copy_for_test(const char* name) {
  return std::strcmp(name, "portable") == 0 ? &portable::copy_streaming : nullptr;
}

}  // namespace reigen::comm::reduce
