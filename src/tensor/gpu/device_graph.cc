#include "tensor/gpu/device_graph.h"

#include <c10/core/DeviceGuard.h>

namespace reigen::tensor {

DeviceGraph::DeviceGraph(const c10::Device& gpu) : gpu_(gpu), calls_(graph_calls()), graph_(calls_.make()) {}

DeviceGraph::~DeviceGraph() { calls_.destroy(graph_); }

void DeviceGraph::capture(const std::function<void()>& body) {
  const c10::DeviceGuard on(gpu_);
  calls_.begin(graph_);
  try {
    body();
  } catch (...) {
    // The stream must leave the state of capturing. That the graph is not complete is no error of its own.
    try {
      calls_.end(graph_);
    } catch (const std::exception&) {
    }
    throw;
  }
  calls_.end(graph_);
}

void DeviceGraph::replay() {
  const c10::DeviceGuard on(gpu_);
  calls_.replay(graph_);
}

}  // namespace reigen::tensor
