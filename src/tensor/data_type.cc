#include "reigen/tensor/data_type.h"

#include <fmt/format.h>

#include "reigen/base/error.h"

namespace reigen::tensor {

comm::DataType to_data_type(at::ScalarType type) {
  switch (type) {
    case at::kChar: return comm::DataType::kInt8;
    case at::kByte: return comm::DataType::kUint8;
    case at::kShort: return comm::DataType::kInt16;
    case at::kInt: return comm::DataType::kInt32;
    case at::kLong: return comm::DataType::kInt64;
    case at::kHalf: return comm::DataType::kFloat16;
    case at::kBFloat16: return comm::DataType::kBfloat16;
    case at::kFloat: return comm::DataType::kFloat32;
    case at::kDouble: return comm::DataType::kFloat64;
    case at::kBool: return comm::DataType::kBool;
    default: break;
  }
  throw InvalidArgument(
      Report{.what = "[tensor] this element type cannot be communicated",
             .got = c10::toString(type),
             .expected = "int8, uint8, int16, int32, int64, float16, bfloat16, float32, float64 or bool",
             .fix = "convert the tensor first, for example with .to(torch::kFloat32)"});
}

at::ScalarType to_scalar_type(comm::DataType type) {
  switch (type) {
    case comm::DataType::kInt8: return at::kChar;
    case comm::DataType::kUint8: return at::kByte;
    case comm::DataType::kInt16: return at::kShort;
    case comm::DataType::kInt32: return at::kInt;
    case comm::DataType::kInt64: return at::kLong;
    case comm::DataType::kFloat16: return at::kHalf;
    case comm::DataType::kBfloat16: return at::kBFloat16;
    case comm::DataType::kFloat32: return at::kFloat;
    case comm::DataType::kFloat64: return at::kDouble;
    case comm::DataType::kBool: return at::kBool;
  }
  throw InvalidArgument(fmt::format("[tensor] {} is not a data type", static_cast<int>(type)));
}

}  // namespace reigen::tensor
