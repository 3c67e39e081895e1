// Converts between the element types of files and of LibTorch.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "reigen/format/safetensors.h"

namespace reigen::tensor {

// Throws InvalidArgument, which names the tensor, if files have no such type.
format::TensorType stored_type(const std::string& name, at::ScalarType type);
// Throws DataError, which names the tensor, if LibTorch has no such type. It has none for packed elements of 4 and 6
// bits.
at::ScalarType scalar_type_of(const std::string& name, format::TensorType type);

}  // namespace reigen::tensor
