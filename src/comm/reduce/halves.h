// Sums of two inputs of 16-bit floats, with the processor's instructions for these types. The results have the same
// bits as those of kernels.inl.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reigen::comm::reduce {

// first[i] = second[i] = (a[i] + b[i]) * factor, added in fp32 and rounded once. `second` may be null; outputs may be
// the inputs.
struct HalfSum {
  const std::uint16_t* a = nullptr;
  const std::uint16_t* b = nullptr;
  std::uint16_t* first = nullptr;
  std::uint16_t* second = nullptr;
  std::size_t count = 0;
  float factor = 1;
};

// sum_bfloat16() and sum_float16() sum the elements of all whole vectors, from the first element on, and return the
// number of these elements. They sum nothing and return 0 if the processor lacks the instructions.
namespace avx512 {
std::size_t sum_bfloat16(const HalfSum& sum);
std::size_t sum_float16(const HalfSum& sum);
}  // namespace avx512

}  // namespace reigen::comm::reduce
