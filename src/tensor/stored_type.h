// Element types in files and in LibTorch.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "reigen/format/safetensors.h"

namespace reigen::tensor {

// Throws InvalidArgument naming the tensor when files know no such type.
format::TensorType stored_type(const std::string& name, at::ScalarType type);
at::ScalarType scalar_type_of(format::TensorType type);

}  // namespace reigen::tensor
