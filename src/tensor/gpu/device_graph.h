// A CUDA graph: work of a GPU that was captured once, and that one call puts on a stream again. The host then need not
// enqueue each kernel, which takes several microseconds for each.
//
// LibTorch's graphs need its headers for CUDA, which need those of the CUDA toolkit. So the code that uses them is in a
// plug-in, libreigen_torch_cuda.so (cuda/torch_graph.cc), which is opened when the first graph is made.
// Thread rule: one thread.
#pragma once

#include <c10/core/Device.h>

#include <functional>

#include "tensor/gpu/graph_calls.h"

namespace reigen::tensor {

class DeviceGraph {
 public:
  // Throws BackendError with exit code 69 if the plug-in cannot be opened.
  explicit DeviceGraph(const c10::Device& gpu);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;  // LibTorch's graph has one owner
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  // Runs `body`. The work that `body` puts on LibTorch's current stream is not run, but becomes the graph. This stream
  // must not be the default stream. Tensors that `body` makes lie in memory of the graph: each replay() writes them
  // again, and they are valid as long as the graph lives. `body` must not wait for the GPU, and must use no number on
  // the host that differs between replays. Throws what `body` throws, and c10::Error if the work cannot be captured.
  void capture(const std::function<void()>& body);
  // Puts the captured work on LibTorch's current stream.
  void replay();

 private:
  const c10::Device gpu_;
  const GraphCalls& calls_;
  void* const graph_;
};

}  // namespace reigen::tensor
