// Gives the CUDA stream that a stream of LibTorch stands for.
// Thread rule: any thread.
#pragma once

#include <c10/core/Stream.h>

namespace reigen::tensor {

// The stream as a cudaStream_t; null: the default stream. Throws BackendError if LibTorch is too old to have
// Stream::native_handle().
void* native_handle(const c10::Stream& stream);

}  // namespace reigen::tensor
