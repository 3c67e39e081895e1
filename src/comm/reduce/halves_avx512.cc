#include <immintrin.h>

#include "comm/reduce/halves.h"

namespace reigen::comm::reduce::avx512 {

namespace {

constexpr std::size_t kVector = 32;  // elements of 16 bits

struct Floats {
  __m512 low;   // of every lane of 128 bits, the lower four
  __m512 high;  // and the upper four
};

Floats widen(__m512i halves) {
  const __m512i zero = _mm512_setzero_si512();
  return {_mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, halves)),
          _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, halves))};
}

// As Bfloat16 of kernels.inl, for sums that the instruction would flush to zero.
std::uint16_t round_bfloat16(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
}

float widen_one(std::uint16_t half) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(half) << 16); }

void add_one_by_one(const HalfSum& sum, std::size_t begin, std::uint16_t* result) {
  for (std::size_t i = 0; i < kVector; ++i) {
    result[i] = round_bfloat16((widen_one(sum.a[begin + i]) + widen_one(sum.b[begin + i])) * sum.factor);
  }
}

bool has_subnormal(__m512 a, __m512 b) {
  constexpr int kSubnormal = 0x20;
  return (_mm512_fpclass_ps_mask(a, kSubnormal) | _mm512_fpclass_ps_mask(b, kSubnormal)) != 0;
}

template <bool kScaled>
__m512 add(__m512 a, __m512 b, __m512 factor) {
  const __m512 sum = _mm512_add_ps(a, b);
  return kScaled ? _mm512_mul_ps(sum, factor) : sum;
}

void store(const HalfSum& sum, std::size_t at, __m512i result) {
  _mm512_storeu_si512(sum.first + at, result);
  if (sum.second != nullptr) _mm512_storeu_si512(sum.second + at, result);
}

template <bool kScaled>
void add_bfloat16(const HalfSum& sum, std::size_t whole) {
  const __m512 factor = _mm512_set1_ps(sum.factor);
  // The conversion packs the low and the high quarters of all lanes apart: 64 bits of each by turns bring them back.
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  for (std::size_t i = 0; i < whole; i += kVector) {
    const Floats a = widen(_mm512_loadu_si512(sum.a + i));
    const Floats b = widen(_mm512_loadu_si512(sum.b + i));
    const __m512 low = add<kScaled>(a.low, b.low, factor);
    const __m512 high = add<kScaled>(a.high, b.high, factor);
    __m512i result;
    if (__builtin_expect(has_subnormal(low, high), 0)) {
      alignas(64) std::uint16_t one_by_one[kVector];
      add_one_by_one(sum, i, one_by_one);
      result = _mm512_load_si512(one_by_one);
    } else {
      result = _mm512_permutexvar_epi64(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
    }
    store(sum, i, result);
  }
}

template <bool kScaled>
void add_float16(const HalfSum& sum, std::size_t whole) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const __m512 factor = _mm512_set1_ps(sum.factor);
  const auto add_vector = [&](std::size_t i) {
    const __m512 a = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sum.a + i)));
    const __m512 b = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(sum.b + i)));
    return _mm512_cvtps_ph(add<kScaled>(a, b, factor), kNearest);
  };
  for (std::size_t i = 0; i < whole; i += kVector) {
    const __m256i low = add_vector(i);
    const __m256i high = add_vector(i + kVector / 2);
    store(sum, i, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
  }
}

}  // namespace

std::size_t sum_bfloat16(const HalfSum& sum) {
  if (!__builtin_cpu_supports("avx512bf16")) return 0;
  const std::size_t whole = sum.count / kVector * kVector;
  sum.factor == 1 ? add_bfloat16<false>(sum, whole) : add_bfloat16<true>(sum, whole);
  return whole;
}

std::size_t sum_float16(const HalfSum& sum) {
  const std::size_t whole = sum.count / kVector * kVector;
  sum.factor == 1 ? add_float16<false>(sum, whole) : add_float16<true>(sum, whole);
  return whole;
}

}  // namespace reigen::comm::reduce::avx512
