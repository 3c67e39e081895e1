#include "format/pickle_globals.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace reigen::format {
namespace {

constexpr PickleGlobal kGlobals[] = {
    {"collections", "OrderedDict", PickleRole::kDict},
    {"collections", "Counter", PickleRole::kDict},
    {"collections", "defaultdict", PickleRole::kDefaultDict},
    {"builtins", "set", PickleRole::kSet},
    {"builtins", "frozenset", PickleRole::kSet},
    {"builtins", "bytes", PickleRole::kBytes},
    {"builtins", "bytearray", PickleRole::kBytes},
    {"_codecs", "encode", PickleRole::kBytes},  // bytes of protocol 2, as text
    {"builtins", "dict", PickleRole::kType},
    {"builtins", "list", PickleRole::kType},
    {"builtins", "int", PickleRole::kType},
    {"builtins", "float", PickleRole::kType},
    {"builtins", "str", PickleRole::kType},
    {"builtins", "bool", PickleRole::kType},
    {"torch", "Size", PickleRole::kSize},
    {"torch", "device", PickleRole::kDevice},
    {"torch", "Tensor", PickleRole::kTensorClass},
    {"torch.nn.parameter", "Parameter", PickleRole::kTensorClass},
    {"torch._utils", "_rebuild_tensor_v2", PickleRole::kRebuildTensor},
    {"torch._utils", "_rebuild_tensor_v3", PickleRole::kRebuildTyped},
    {"torch._utils", "_rebuild_parameter", PickleRole::kRebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state", PickleRole::kRebuildParameter},
    {"torch._tensor", "_rebuild_from_type_v2", PickleRole::kRebuildSubclass},
    {"torch", "DoubleStorage", PickleRole::kStorageClass, TensorType::kF64},
    {"torch", "FloatStorage", PickleRole::kStorageClass, TensorType::kF32},
    {"torch", "HalfStorage", PickleRole::kStorageClass, TensorType::kF16},
    {"torch", "BFloat16Storage", PickleRole::kStorageClass, TensorType::kBF16},
    {"torch", "LongStorage", PickleRole::kStorageClass, TensorType::kI64},
    {"torch", "IntStorage", PickleRole::kStorageClass, TensorType::kI32},
    {"torch", "ShortStorage", PickleRole::kStorageClass, TensorType::kI16},
    {"torch", "CharStorage", PickleRole::kStorageClass, TensorType::kI8},
    {"torch", "ByteStorage", PickleRole::kStorageClass, TensorType::kU8},
    {"torch", "BoolStorage", PickleRole::kStorageClass, TensorType::kBool},
    {"torch.storage", "UntypedStorage", PickleRole::kStorageClass, TensorType::kU8},
    {"torch", "UntypedStorage", PickleRole::kStorageClass, TensorType::kU8},
    {"torch.storage", "TypedStorage", PickleRole::kStorageClass},
    {"torch", "ComplexFloatStorage", PickleRole::kStorageClass},
    {"torch", "ComplexDoubleStorage", PickleRole::kStorageClass},
    {"torch", "QInt8Storage", PickleRole::kStorageClass},
    {"torch", "QUInt8Storage", PickleRole::kStorageClass},
    {"torch", "QInt32Storage", PickleRole::kStorageClass},
    {"torch", "QUInt4x2Storage", PickleRole::kStorageClass},
    {"torch", "QUInt2x4Storage", PickleRole::kStorageClass},
    {"torch", "float64", PickleRole::kElementType, TensorType::kF64},
    {"torch", "float32", PickleRole::kElementType, TensorType::kF32},
    {"torch", "float16", PickleRole::kElementType, TensorType::kF16},
    {"torch", "bfloat16", PickleRole::kElementType, TensorType::kBF16},
    {"torch", "int64", PickleRole::kElementType, TensorType::kI64},
    {"torch", "int32", PickleRole::kElementType, TensorType::kI32},
    {"torch", "int16", PickleRole::kElementType, TensorType::kI16},
    {"torch", "int8", PickleRole::kElementType, TensorType::kI8},
    {"torch", "uint8", PickleRole::kElementType, TensorType::kU8},
    {"torch", "bool", PickleRole::kElementType, TensorType::kBool},
    {"torch", "uint16", PickleRole::kElementType},
    {"torch", "uint32", PickleRole::kElementType},
    {"torch", "uint64", PickleRole::kElementType},
    {"torch", "complex32", PickleRole::kElementType},
    {"torch", "complex64", PickleRole::kElementType},
    {"torch", "complex128", PickleRole::kElementType},
    {"torch", "float8_e4m3fn", PickleRole::kElementType},
    {"torch", "float8_e5m2", PickleRole::kElementType},
    {"torch", "float8_e4m3fnuz", PickleRole::kElementType},
    {"torch", "float8_e5m2fnuz", PickleRole::kElementType},
    {"torch", "float8_e8m0fnu", PickleRole::kElementType},
    {"torch", "float4_e2m1fn_x2", PickleRole::kElementType},
    {"torch", "qint8", PickleRole::kElementType},
    {"torch", "quint8", PickleRole::kElementType},
    {"torch", "qint32", PickleRole::kElementType},
    {"torch", "bits8", PickleRole::kElementType},
    {"torch", "bits16", PickleRole::kElementType},
};

}  // namespace

std::optional<std::uint32_t> find_pickle_global(std::string_view module, std::string_view name) {
  if (module == "__builtin__") module = "builtins";  // as protocol 2 has it
  const auto* found = std::find_if(std::begin(kGlobals), std::end(kGlobals), [&](const PickleGlobal& known) {
    return known.module == module && known.name == name;
  });
  if (found == std::end(kGlobals)) return std::nullopt;
  return static_cast<std::uint32_t>(found - std::begin(kGlobals));
}

const PickleGlobal& pickle_global(std::uint32_t number) {
  REIGEN_ASSERT(number < std::size(kGlobals), "name {} of {}", number, std::size(kGlobals));
  return kGlobals[number];
}

}  // namespace reigen::format
