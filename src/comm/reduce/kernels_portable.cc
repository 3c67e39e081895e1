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

// Templates of one name compiled with different flags must not meet: each set has its own namespace.
#include "comm/reduce/kernels.inl"

}  // namespace reigen::comm::reduce::portable
