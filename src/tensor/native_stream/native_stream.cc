#include "tensor/native_stream/native_stream.h"

namespace reigen::tensor {

void* native_handle(const c10::Stream& stream) { return stream.native_handle(); }

}  // namespace reigen::tensor
