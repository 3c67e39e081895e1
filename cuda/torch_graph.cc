// The plug-in libreigen_torch_cuda.so: LibTorch's CUDA graphs behind the functions of src/tensor/gpu/graph_calls.h. It
// is compiled with LibTorch's headers for CUDA. No program links it, and it links none of LibTorch's CUDA libraries: a
// program has loaded them before it opens the plug-in (tensor/gpu/torch_cuda.h).
#include "tensor/gpu/graph_calls.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>

namespace {

at::cuda::CUDAGraph& graph_at(void* graph) { return *static_cast<at::cuda::CUDAGraph*>(graph); }

}  // namespace

extern "C" {

int reigen_torch_cuda_version() { return reigen::tensor::kGraphPluginVersion; }

void* reigen_graph_make() { return new at::cuda::CUDAGraph; }

// A graph has memory of its own. The memory that LibTorch keeps from earlier steps is freed first, because otherwise
// activations would take memory twice. In mode "thread local" threads that prepare batches, and threads that poll
// events, may call CUDA during the capture.
void reigen_graph_begin(void* graph) {
  c10::cuda::CUDACachingAllocator::emptyCache();
  graph_at(graph).capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
}

// If the capture has failed, LibTorch throws before it has told its allocator that the capture is over.
void reigen_graph_end(void* graph) {
  try {
    graph_at(graph).capture_end();
  } catch (...) {
    const auto device = c10::cuda::current_device();
    const auto pool = graph_at(graph).pool();
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool);
      c10::cuda::CUDACachingAllocator::releasePool(device, pool);
    } catch (const c10::Error&) {
      // The allocator knows already.
    }
    throw;
  }
}

void reigen_graph_replay(void* graph) { graph_at(graph).replay(); }

void reigen_graph_destroy(void* graph) { delete static_cast<at::cuda::CUDAGraph*>(graph); }

}  // extern "C"
