// Converts between the element types of LibTorch and of the communicator, one to one.
#pragma once

#include <c10/core/ScalarType.h>

#include "reigen/comm/types.h"

namespace reigen::tensor {

// Throws InvalidArgument, naming the type, for types that no communicator can send: complex, quantized, fp8.
comm::DataType to_data_type(at::ScalarType type);

at::ScalarType to_scalar_type(comm::DataType type);

}  // namespace reigen::tensor
