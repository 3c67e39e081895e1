// Returns the CUDA stream of a LibTorch stream.
// Thread rule: any thread.
#pragma once

#include <c10/core/Stream.h>

namespace reigen::tensor {

// Returns the stream as a cudaStream_t, which is null for the default stream. Throws BackendError if LibTorch is too
// old to have Stream::native_handle().
void* native_handle(const c10::Stream& stream);

}  // namespace reigen::tensor
