#include <immintrin.h>

#include "image/kernels.h"

namespace reigen::image::avx2 {

namespace {

__m128i load_16(const std::uint8_t* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
__m256i load_32(const void* at) { return _mm256_loadu_si256(static_cast<const __m256i*>(at)); }

// (high · 2^kLowBits + low + a half) >> kWeightBits, for sums of the two halves of the weights.
__m256i rounded(__m256i high, __m256i low) {
  const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, kLowBits), low);
  return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << (kWeightBits - 1))), kWeightBits);
}

struct Sums {
  __m256i high = _mm256_setzero_si256();
  __m256i low = _mm256_setzero_si256();
};

// The pixels 2·pair and 2·pair + 1 of kRows rows. Each half of a register belongs to one of the two pixels.
template <std::size_t kRows>
void two_pixels(const Taps& taps, std::size_t pair, const std::uint8_t* const* rows, std::uint8_t* to,
                std::size_t stride) {
  // From 4 pixels: red 0 and 1, green 0 and 1, blue 0 and 1, as 16 bits; and the same of the pixels 2 and 3.
  const __m256i first_two =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const __m256i last_two =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
  const std::ptrdiff_t left = 3 * static_cast<std::ptrdiff_t>(taps.first[2 * pair]);
  const std::ptrdiff_t right = 3 * static_cast<std::ptrdiff_t>(taps.first[2 * pair + 1]);
  const int count = taps.count[2 * pair] > taps.count[2 * pair + 1] ? taps.count[2 * pair] : taps.count[2 * pair + 1];
  const std::int16_t* halves = taps.halves.data() + pair * static_cast<std::size_t>(taps.groups) * 16;
  Sums sums[kRows];
  for (int k = 0; k < count; k += kGroup, halves += 16) {
    const __m256i weights = load_32(halves);
    const __m256i high_01 = _mm256_shuffle_epi32(weights, 0x00);
    const __m256i high_23 = _mm256_shuffle_epi32(weights, 0x55);
    const __m256i low_01 = _mm256_shuffle_epi32(weights, 0xAA);
    const __m256i low_23 = _mm256_shuffle_epi32(weights, 0xFF);
    for (std::size_t r = 0; r < kRows; ++r) {
      const __m256i pixels = _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(rows[r] + left + 3 * k)),
                                                     load_16(rows[r] + right + 3 * k), 1);
      const __m256i pixels_01 = _mm256_shuffle_epi8(pixels, first_two);
      const __m256i pixels_23 = _mm256_shuffle_epi8(pixels, last_two);
      sums[r].high = _mm256_add_epi32(
          sums[r].high, _mm256_add_epi32(_mm256_madd_epi16(pixels_01, high_01), _mm256_madd_epi16(pixels_23, high_23)));
      sums[r].low = _mm256_add_epi32(
          sums[r].low, _mm256_add_epi32(_mm256_madd_epi16(pixels_01, low_01), _mm256_madd_epi16(pixels_23, low_23)));
    }
  }
  const __m128i without_gaps = _mm_setr_epi8(0, 1, 2, 4, 5, 6, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  for (std::size_t r = 0; r < kRows; ++r) {
    const __m256i values = rounded(sums[r].high, sums[r].low);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
    const __m128i bytes = _mm_shuffle_epi8(_mm_packus_epi16(words, words), without_gaps);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to + stride * r + 6 * pair), bytes);
  }
}

template <std::size_t kRows>
void some_rows(const Taps& taps, const PixelView& from, int y, std::size_t pairs, std::uint8_t* to,
               std::size_t stride) {
  const std::uint8_t* rows[kRows];
  for (std::size_t r = 0; r < kRows; ++r) rows[r] = from.row(y + static_cast<int>(r));
  for (std::size_t pair = 0; pair < pairs; ++pair) {
    two_pixels<kRows>(taps, pair, rows, to + stride * static_cast<std::size_t>(y), stride);
  }
}

// The number of pairs of pixels whose loads of 16 bytes stay within the readable bytes.
std::size_t pairs_within(const Taps& taps, std::size_t readable) {
  const auto fits = [&](int i) {
    const auto at = static_cast<std::size_t>(i);
    const int count = taps.count[at - at % 2] > taps.count[at] ? taps.count[at - at % 2] : taps.count[at];
    const int last_group = (count - 1) / kGroup * kGroup;
    return 3 * static_cast<std::size_t>(taps.first[at] + last_group) + 16 <= readable;
  };
  int pixels = taps.size / 2 * 2;
  while (pixels > 0 && !fits(pixels - 1)) pixels -= 2;
  return static_cast<std::size_t>(pixels) / 2;
}

}  // namespace

void across(const Taps& taps, const Rows& from, std::uint8_t* to, std::size_t stride) {
  constexpr int kTogether = 4;
  const std::size_t pairs = pairs_within(taps, from.readable);
  int y = 0;
  const PixelView& rows = from.rows;
  for (; y + kTogether <= rows.size.height; y += kTogether) some_rows<kTogether>(taps, rows, y, pairs, to, stride);
  for (; y < rows.size.height; ++y) some_rows<1>(taps, rows, y, pairs, to, stride);
  for (y = 0; y < rows.size.height; ++y) {
    portable::across_pixels(taps, rows.row(y), to + stride * static_cast<std::size_t>(y), static_cast<int>(2 * pairs),
                            taps.size);
  }
}

namespace {

// 32 bytes of a row of the result. Bytes of two rows are interleaved, so that one instruction weighs and adds both.
void column_block(const DownPass& pass, std::size_t at, std::uint8_t* to) {
  const __m256i zero = _mm256_setzero_si256();
  Sums sums[4];
  for (int k = 0; k < pass.count; k += 2) {
    const bool both = k + 1 < pass.count;
    const std::uint8_t* row = pass.from + pass.stride * static_cast<std::size_t>(k) + at;
    const __m256i one = load_32(row);
    const __m256i two = load_32(both ? row + pass.stride : row);
    const std::int32_t first = pass.weights[k];
    const std::int32_t second = both ? pass.weights[k + 1] : 0;
    constexpr std::int32_t kLowMask = (1 << kLowBits) - 1;
    const __m256i high = _mm256_set1_epi32((second >> kLowBits) << 16 | first >> kLowBits);
    const __m256i low = _mm256_set1_epi32((second & kLowMask) << 16 | (first & kLowMask));
    const __m256i bytes[2] = {_mm256_unpacklo_epi8(one, two), _mm256_unpackhi_epi8(one, two)};
    for (int i = 0; i < 4; ++i) {
      const __m256i words =
          i % 2 == 0 ? _mm256_unpacklo_epi8(bytes[i / 2], zero) : _mm256_unpackhi_epi8(bytes[i / 2], zero);
      sums[i].high = _mm256_add_epi32(sums[i].high, _mm256_madd_epi16(words, high));
      sums[i].low = _mm256_add_epi32(sums[i].low, _mm256_madd_epi16(words, low));
    }
  }
  // Packing works on halves of registers, as unpacking did, so the bytes come back into their order.
  const __m256i left = _mm256_packs_epi32(rounded(sums[0].high, sums[0].low), rounded(sums[1].high, sums[1].low));
  const __m256i right = _mm256_packs_epi32(rounded(sums[2].high, sums[2].low), rounded(sums[3].high, sums[3].low));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + at), _mm256_packus_epi16(left, right));
}

}  // namespace

void down(const DownPass& pass, std::uint8_t* to, std::size_t bytes) {
  constexpr std::size_t kBlock = 32;
  if (bytes < kBlock) return portable::down(pass, to, bytes);
  for (std::size_t at = 0; at + kBlock <= bytes; at += kBlock) column_block(pass, at, to);
  if (bytes % kBlock != 0) column_block(pass, bytes - kBlock, to);
}

}  // namespace reigen::image::avx2
