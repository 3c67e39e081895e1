// Opens LibTorch's part for GPUs, libtorch_cuda.so. Programs link LibTorch's part for the CPU only, so that they start
// in milliseconds and also where there is no CUDA.
// Thread rule: any thread.
#pragma once

namespace reigen::tensor {

// Does nothing if LibTorch has this part already. It must be the first use of a GPU in the process: after a call of
// at::hasCUDA(), LibTorch does not notice the library any more. Throws BackendError with exit code 69 and the dynamic
// linker's text, which names the library that is missing.
void open_torch_cuda();

}  // namespace reigen::tensor
