// native_handle() for a LibTorch without Stream::native_handle().
#include "tensor/native_stream/native_stream.h"

#include <torch/version.h>

#include "reigen/base/error.h"

namespace reigen::tensor {

void* native_handle(const c10::Stream& /*stream*/) {
  throw BackendError(Report{.what = "this LibTorch does not tell which CUDA stream it uses",
                            .got = "LibTorch " TORCH_VERSION,
                            .expected = "a LibTorch with c10::Stream::native_handle(), as 2.11 has it",
                            .fix = "build Reigen with a newer LibTorch, or keep the tensors on the CPU"});
}

}  // namespace reigen::tensor
