#include "tensor/stored_type.h"

#include <array>

#include "base/check.h"

namespace reigen::tensor {

namespace {

struct TypePair {
  at::ScalarType scalar;
  format::TensorType stored;
};

constexpr std::array<TypePair, 10> kTypes = {{
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
}};

}  // namespace

format::TensorType stored_type(const std::string& name, at::ScalarType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.scalar == type) return pair.stored;
  }
  throw InvalidArgument(fmt::format("cannot store {}: files have no type {}", name, c10::toString(type)));
}

at::ScalarType scalar_type_of(format::TensorType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.stored == type) return pair.scalar;
  }
  throw InternalError(fmt::format("no tensor type for {}", format::name_of(type)));
}

}  // namespace reigen::tensor
