#include "tensor/gpu/torch_cuda.h"

#include <ATen/detail/CUDAHooksInterface.h>

#include "device/library.h"

namespace reigen::tensor {

void open_torch_cuda() {
  // This does not call at::hasCUDA(), because LibTorch keeps the first answer of at::hasCUDA() for ever.
  if (at::CUDAHooksRegistry()->Has("CUDAHooks")) return;
  const device::Library opened(
      {.name = "LibTorch's part for GPUs",
       .files = {"libtorch_cuda.so"},
       .folders = device::folders_beside_torch(),
       .fix = "take a LibTorch with CUDA, which stays where it is: pip install torch (brings nvidia-*), and build with "
              "REIGEN_TORCH=FOLDER/torch; or stay with the cpu",
       .is_global = true});
}

}  // namespace reigen::tensor
