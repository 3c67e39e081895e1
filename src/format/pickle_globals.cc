#include "format/pickle_globals.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace reigen::format {
namespace {

constexpr PickleRole kOther = PickleRole::kRebuildOther;

constexpr PickleGlobal kGlobals[] = {
    {"collections", "OrderedDict", PickleRole::kDict},
    {"collections", "Counter", PickleRole::kDict},
    {"collections", "defaultdict", PickleRole::kDefaultDict},
    {"builtins", "set", PickleRole::kSet},
    {"builtins", "frozenset", PickleRole::kSet},
    {"builtins", "bytes", PickleRole::kBytes},
    {"builtins", "bytearray", PickleRole::kBytes},
    {"_codecs", "encode", PickleRole::kBytes},  // protocol 2 writes bytes as text
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
    {"torch._utils", "_rebuild_qtensor", kOther, {}, "a quantized tensor: save tensor.dequantize()"},
    {"torch._utils", "_rebuild_sparse_tensor", kOther, {}, "a sparse tensor: save tensor.to_dense()"},
    {"torch._utils", "_rebuild_sparse_csr_tensor", kOther, {}, "a sparse tensor: save tensor.to_dense()"},
    {"torch._utils", "_rebuild_nested_tensor", kOther, {}, "a nested tensor: save the tensors of tensor.unbind()"},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", kOther, {}, "a tensor without values (device meta)"},
    {"torch._utils", "_rebuild_wrapper_subclass", kOther, {}, "a tensor of a class that keeps its values elsewhere"},
    {"torch._utils", "_rebuild_device_tensor_from_numpy", kOther, {}, "a tensor as NumPy has it: save tensor.cpu()"},
    {"torch._utils", "_rebuild_xla_tensor", kOther, {}, "a tensor as NumPy has it: save tensor.cpu()"},
    {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", PickleRole::kFirstArgument},
    // Functions that C++ writes around the values of TorchScript.
    {"torch.jit._pickle", "build_intlist", PickleRole::kFirstArgument},
    {"torch.jit._pickle", "build_doublelist", PickleRole::kFirstArgument},
    {"torch.jit._pickle", "build_boollist", PickleRole::kFirstArgument},
    {"torch.jit._pickle", "build_tensorlist", PickleRole::kFirstArgument},
    {"torch.jit._pickle", "restore_type_tag", PickleRole::kFirstArgument},
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
    {"torch", "ComplexFloatStorage", PickleRole::kStorageClass, TensorType::kC64},
    {"torch", "ComplexHalfStorage", PickleRole::kStorageClass},
    // Only C++ has names for storages of these types.
    {"torch", "UInt16Storage", PickleRole::kStorageClass, TensorType::kU16},
    {"torch", "UInt32Storage", PickleRole::kStorageClass, TensorType::kU32},
    {"torch", "UInt64Storage", PickleRole::kStorageClass, TensorType::kU64},
    {"torch", "Float8_e4m3fnStorage", PickleRole::kStorageClass, TensorType::kF8E4M3},
    {"torch", "Float8_e5m2Storage", PickleRole::kStorageClass, TensorType::kF8E5M2},
    {"torch", "Float8_e4m3fnuzStorage", PickleRole::kStorageClass, TensorType::kF8E4M3Fnuz},
    {"torch", "Float8_e5m2fnuzStorage", PickleRole::kStorageClass, TensorType::kF8E5M2Fnuz},
    {"torch", "Float8_e8m0fnuStorage", PickleRole::kStorageClass, TensorType::kF8E8M0},
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
    {"torch", "uint16", PickleRole::kElementType, TensorType::kU16},
    {"torch", "uint32", PickleRole::kElementType, TensorType::kU32},
    {"torch", "uint64", PickleRole::kElementType, TensorType::kU64},
    {"torch", "complex32", PickleRole::kElementType},
    {"torch", "complex64", PickleRole::kElementType, TensorType::kC64},
    {"torch", "complex128", PickleRole::kElementType},
    {"torch", "float8_e4m3fn", PickleRole::kElementType, TensorType::kF8E4M3},
    {"torch", "float8_e5m2", PickleRole::kElementType, TensorType::kF8E5M2},
    {"torch", "float8_e4m3fnuz", PickleRole::kElementType, TensorType::kF8E4M3Fnuz},
    {"torch", "float8_e5m2fnuz", PickleRole::kElementType, TensorType::kF8E5M2Fnuz},
    {"torch", "float8_e8m0fnu", PickleRole::kElementType, TensorType::kF8E8M0},
    {"torch", "float4_e2m1fn_x2", PickleRole::kElementType},
    {"torch", "qint8", PickleRole::kElementType},
    {"torch", "quint8", PickleRole::kElementType},
    {"torch", "qint32", PickleRole::kElementType},
    {"torch", "bits8", PickleRole::kElementType},
    {"torch", "bits16", PickleRole::kElementType},
};

}  // namespace

std::optional<std::uint32_t> find_pickle_global(std::string_view module, std::string_view name) {
  if (module == "__builtin__") module = "builtins";  // the name of the module in protocol 2
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

bool runs_programs(std::string_view module, std::string_view name) {
  // A name may itself be a path: the name "os.system" of the module "torch.storage".
  if (const auto dot = name.rfind('.'); dot != std::string_view::npos) {
    module = name.substr(0, dot);
    name.remove_prefix(dot + 1);
  }
  if (const auto dot = module.rfind('.'); dot != std::string_view::npos) module.remove_prefix(dot + 1);
  if (module == "os" || module == "posix" || module == "nt") {
    return name == "system" || name == "popen" || name == "startfile" || name.starts_with("exec") ||
           name.starts_with("spawn") || name.starts_with("posix_spawn");
  }
  if (module == "builtins" || module == "__builtin__") {
    return name == "eval" || name == "exec" || name == "execfile" || name == "compile" || name == "__import__";
  }
  return module == "subprocess" || module == "runpy" || (module == "pty" && name == "spawn");
}

}  // namespace reigen::format
