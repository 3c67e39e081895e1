#include <cstddef>
#include <cstdint>
#include <cstring>

#include "comm/reduce/halves.h"
#include "comm/reduce/reduce.h"

namespace reigen::comm::reduce::portable {

namespace {

void stream_copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void stream_fence() {}
std::size_t sum_bfloat16(const HalfSum&) { return 0; }
std::size_t sum_float16(const HalfSum&) { return 0; }

}  // namespace

// Each instruction set has its own namespace. Otherwise the linker would merge templates of the same name that were
// compiled with different flags.
#include "comm/reduce/kernels.inl"

}  // namespace reigen::comm::reduce::portable
