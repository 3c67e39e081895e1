// Element types and reductions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reigen::comm {

enum class DataType : std::uint8_t {
  kInt8,
  kUint8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kBool,  // a byte, 0 or 1; any other value counts as 1
};

// 16-bit floats are added in fp32. The default algorithms round only the final sum to 16 bits. An algorithm that passes
// partial sums from rank to rank rounds each partial sum (docs/algorithms.md). kAvg is the sum divided by the number of
// ranks; for integers the quotient is truncated. With every reduction, a NaN in any input gives a NaN, whose bit
// pattern is not specified. Integers wrap on overflow. For kBool, sum and max are "or", prod and min are "and", and
// there is no average. The bitwise reductions are for integers and kBool. A reduction that is not defined for the type
// throws InvalidArgument.
enum class ReduceOp : std::uint8_t { kSum, kAvg, kProd, kMin, kMax, kBand, kBor, kBxor };

// Whether the reduction is defined for the type.
bool is_defined(ReduceOp op, DataType type);

std::size_t size_of(DataType type);  // bytes of one element
const char* name_of(DataType type);
const char* name_of(ReduceOp op);

}  // namespace reigen::comm
