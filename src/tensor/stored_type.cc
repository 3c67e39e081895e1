#include "tensor/stored_type.h"

#include <fmt/format.h>
#include <torch/version.h>

#include "reigen/base/error.h"

namespace reigen::tensor {

namespace {

struct TypePair {
  at::ScalarType scalar;
  format::TensorType stored;
};

constexpr TypePair kTypes[] = {
    {at::kDouble, format::TensorType::kF64},
    {at::kFloat, format::TensorType::kF32},
    {at::kHalf, format::TensorType::kF16},
    {at::kBFloat16, format::TensorType::kBF16},
    {at::kLong, format::TensorType::kI64},
    {at::kInt, format::TensorType::kI32},
    {at::kShort, format::TensorType::kI16},
    {at::kChar, format::TensorType::kI8},
    {at::kByte, format::TensorType::kU8},
    {at::kBool, format::TensorType::kBool},
    {at::kUInt64, format::TensorType::kU64},
    {at::kUInt32, format::TensorType::kU32},
    {at::kUInt16, format::TensorType::kU16},
    {at::kComplexFloat, format::TensorType::kC64},
    {at::kFloat8_e4m3fn, format::TensorType::kF8E4M3},
    {at::kFloat8_e5m2, format::TensorType::kF8E5M2},
    {at::kFloat8_e4m3fnuz, format::TensorType::kF8E4M3Fnuz},
    {at::kFloat8_e5m2fnuz, format::TensorType::kF8E5M2Fnuz},
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 7  // the first version with this type
    {at::kFloat8_e8m0fnu, format::TensorType::kF8E8M0},
#endif
};

}  // namespace

format::TensorType stored_type(const std::string& name, at::ScalarType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.scalar == type) return pair.stored;
  }
  throw InvalidArgument(Report{
      .what = fmt::format("cannot store {}: files have no type for it", name),
      .got = c10::toString(type),
      .expected = format::names_of_tensor_types(),
      .fix = "convert the tensor first, for example with .to(torch::kFloat32); two parts of complex doubles with "
             "torch::view_as_real"});
}

at::ScalarType scalar_type_of(const std::string& name, format::TensorType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.stored == type) return pair.scalar;
  }
  throw DataError(Report{.what = fmt::format("cannot make a tensor of {}", name),
                         .got = std::string(format::name_of(type)),
                         .expected = "a type that LibTorch has",
                         .fix = "leave it out (reigen checkpoint import --skip), or unpack it in Python"});
}

}  // namespace reigen::tensor
