#include <immintrin.h>

#include "comm/reduce/halves.h"

namespace reigen::comm::reduce::avx512 {

namespace {

constexpr std::size_t kVector = 32;  // elements of 16 bits

// 32 bfloat16 elements as floats. A bfloat16 is the upper half of a float. In each pair of elements, the one with the
// even index must be shifted to the upper half. The one with the odd index lies in the upper half already.
struct Floats {
  __m512 even;
  __m512 odd;
};

Floats widen(__m512i halves) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(halves, 16)), _mm512_castsi512_ps(_mm512_and_si512(halves, upper))};
}

// Rounds as Bfloat16::store() in elements.inl does. Used for subnormal sums, which the conversion instruction flushes
// to zero.
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

unsigned subnormals(Floats floats) {
  constexpr int kSubnormal = 0x20;
  return _mm512_fpclass_ps_mask(floats.even, kSubnormal) | _mm512_fpclass_ps_mask(floats.odd, kSubnormal);
}

template <bool kScaled>
__m512 add(__m512 a, __m512 b, __m512 factor) {
  const __m512 sum = _mm512_add_ps(a, b);
  return kScaled ? _mm512_mul_ps(sum, factor) : sum;
}

// The permutation that restores the order after the conversion. The conversion leaves the elements with even indices in
// the lower half of the register, and the elements with odd indices in the upper half.
__m512i interleaving() {
  alignas(64) std::uint16_t from[kVector];
  for (std::size_t i = 0; i < kVector; ++i) from[i] = static_cast<std::uint16_t>(i / 2 + (i % 2) * kVector / 2);
  return _mm512_load_si512(from);
}

template <bool kScaled>
Floats add_vector(const HalfSum& sum, std::size_t at, __m512 factor) {
  const Floats a = widen(_mm512_loadu_si512(sum.a + at));
  const Floats b = widen(_mm512_loadu_si512(sum.b + at));
  return {add<kScaled>(a.even, b.even, factor), add<kScaled>(a.odd, b.odd, factor)};
}

template <bool kTwice>
void store(const HalfSum& sum, std::size_t at, __m512i result) {
  _mm512_storeu_si512(sum.first + at, result);
  if (kTwice) _mm512_storeu_si512(sum.second + at, result);
}

template <bool kTwice>
void store_rounded(const HalfSum& sum, std::size_t at, Floats floats, bool any_subnormal, __m512i order) {
  __m512i result =
      _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(floats.odd, floats.even)));
  if (__builtin_expect(any_subnormal, 0)) {
    alignas(64) std::uint16_t one_by_one[kVector];
    add_one_by_one(sum, at, one_by_one);
    result = _mm512_load_si512(one_by_one);
  }
  store<kTwice>(sum, at, result);
}

// `of_caller` is copied to a local variable. Otherwise the compiler must assume that a store of results changes
// `of_caller`, and reads its members again for every vector.
template <bool kScaled, bool kTwice>
void add_bfloat16(const HalfSum& of_caller, std::size_t whole) {
  const HalfSum sum = of_caller;
  const __m512 factor = _mm512_set1_ps(sum.factor);
  const __m512i order = interleaving();
  std::size_t i = 0;
  for (; i + 2 * kVector <= whole; i += 2 * kVector) {
    const Floats one = add_vector<kScaled>(sum, i, factor);
    const Floats two = add_vector<kScaled>(sum, i + kVector, factor);
    const bool subnormal = (subnormals(one) | subnormals(two)) != 0;
    store_rounded<kTwice>(sum, i, one, subnormal, order);
    store_rounded<kTwice>(sum, i + kVector, two, subnormal, order);
  }
  if (i == whole) return;
  const Floats last = add_vector<kScaled>(sum, i, factor);
  store_rounded<kTwice>(sum, i, last, subnormals(last) != 0, order);
}

template <bool kScaled, bool kTwice>
void add_float16(const HalfSum& of_caller, std::size_t whole) {
  const HalfSum sum = of_caller;
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
    store<kTwice>(sum, i, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
  }
}

}  // namespace

std::size_t sum_bfloat16(const HalfSum& sum) {
  if (!__builtin_cpu_supports("avx512bf16")) return 0;
  const std::size_t whole = sum.count / kVector * kVector;
  if (sum.second != nullptr) {
    sum.factor == 1 ? add_bfloat16<false, true>(sum, whole) : add_bfloat16<true, true>(sum, whole);
  } else {
    sum.factor == 1 ? add_bfloat16<false, false>(sum, whole) : add_bfloat16<true, false>(sum, whole);
  }
  return whole;
}

std::size_t sum_float16(const HalfSum& sum) {
  const std::size_t whole = sum.count / kVector * kVector;
  if (sum.second != nullptr) {
    sum.factor == 1 ? add_float16<false, true>(sum, whole) : add_float16<true, true>(sum, whole);
  } else {
    sum.factor == 1 ? add_float16<false, false>(sum, whole) : add_float16<true, false>(sum, whole);
  }
  return whole;
}

}  // namespace reigen::comm::reduce::avx512
