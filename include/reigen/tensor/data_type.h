// Converts between the element types of LibTorch and of the communicator. Each type of the communicator has exactly one
// counterpart in LibTorch.
#pragma once

#include <c10/core/ScalarType.h>

#include "reigen/comm/types.h"

namespace reigen::tensor {

// Throws InvalidArgument for types that no communicator can send: complex, quantized, fp8. The error names the type.
comm::DataType to_data_type(at::ScalarType type);

at::ScalarType to_scalar_type(comm::DataType type);

}  // namespace reigen::tensor
