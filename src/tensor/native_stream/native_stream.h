// A stream of LibTorch as the device's library knows it.
// Thread rule: any thread.
#pragma once

#include <c10/core/Stream.h>

namespace reigen::tensor {

// The stream as a cudaStream_t; null: the default stream. Throws BackendError where LibTorch is too old to say it.
void* native_handle(const c10::Stream& stream);

}  // namespace reigen::tensor
