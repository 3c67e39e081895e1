#include <cstddef>
#include <cstdint>
#include <cstring>

#include "comm/reduce/reduce.h"

namespace reigen::comm::reduce::portable {

namespace {

void stream_copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void stream_fence() {}

}  // namespace

// Templates of one name compiled with different flags must not meet: each set has its own namespace.
#include "comm/reduce/kernels.inl"

}  // namespace reigen::comm::reduce::portable
