// Opens LibTorch's part for GPUs, libtorch_cuda.so. Programs link only LibTorch's part for the CPU. So they start in
// milliseconds, and they also start on machines without CUDA.
// Thread rule: any thread.
#pragma once

namespace reigen::tensor {

// Does nothing if LibTorch has this part already. Call it before anything else in the process uses a GPU. If
// at::hasCUDA() was called before, LibTorch does not notice the library any more. If the library cannot be opened,
// throws BackendError with exit code 69 and the dynamic linker's text, which names the library that is missing.
void open_torch_cuda();

}  // namespace reigen::tensor
