#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "comm/reduce/halves.h"
#include "comm/reduce/reduce.h"

namespace reigen::comm::reduce::avx2 {

namespace {

void stream_copy(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kVector = 32;
  auto* out = static_cast<unsigned char*>(to);
  const auto* in = static_cast<const unsigned char*>(from);
  for (; bytes > 0 && reinterpret_cast<std::uintptr_t>(out) % kVector != 0; --bytes) *out++ = *in++;
  for (; bytes >= kVector; bytes -= kVector, out += kVector, in += kVector) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)));
  }
  for (; bytes > 0; --bytes) *out++ = *in++;
}

void stream_fence() { _mm_sfence(); }
std::size_t sum_bfloat16(const HalfSum&) { return 0; }
std::size_t sum_float16(const HalfSum&) { return 0; }

}  // namespace

// Each instruction set has its own namespace. Otherwise the linker would merge templates of the same name that were
// compiled with different flags.
#include "comm/reduce/kernels.inl"

}  // namespace reigen::comm::reduce::avx2
