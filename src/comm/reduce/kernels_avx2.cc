#include <cstddef>
#include <cstdint>

#include "comm/reduce/reduce.h"

namespace reigen::comm::reduce::avx2 {

// Templates of one name compiled with different flags must not meet: each set has its own namespace.
#include "comm/reduce/kernels.inl"

}  // namespace reigen::comm::reduce::avx2
