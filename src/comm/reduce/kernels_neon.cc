#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "comm/reduce/halves.h"
#include "comm/reduce/reduce.h"

namespace reigen::comm::reduce::neon {

namespace {

// Stores pairs of vectors with stnp, a hint to the processor that it need not keep the lines in the caches.
void stream_copy(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kPair = 32;
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  for (; bytes >= kPair; bytes -= kPair, out += kPair, in += kPair) {
    const uint8x16_t low = vld1q_u8(in);
    const uint8x16_t high = vld1q_u8(in + kPair / 2);
    asm volatile("stnp %q1, %q2, [%0]" : : "r"(out), "w"(low), "w"(high) : "memory");
  }
  for (; bytes > 0; --bytes) *out++ = *in++;
}

void stream_fence() { asm volatile("dmb ishst" : : : "memory"); }
std::size_t sum_bfloat16(const HalfSum&) { return 0; }
std::size_t sum_float16(const HalfSum&) { return 0; }

}  // namespace

// Each instruction set has its own namespace. Otherwise the linker would merge templates of the same name that were
// compiled with different flags.
#include "comm/reduce/kernels.inl"

}  // namespace reigen::comm::reduce::neon
