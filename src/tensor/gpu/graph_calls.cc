#include "tensor/gpu/graph_calls.h"

#include "base/log.h"
#include "device/library.h"
#include "tensor/gpu/torch_cuda.h"

namespace reigen::tensor {

namespace {

GraphCalls open_graphs() {
  open_torch_cuda();
  const device::Library plugin = device::open_plugin({
      .name = "plug-in for LibTorch's CUDA graphs",
      .file = "libreigen_torch_cuda.so",
      .version_symbol = "reigen_torch_cuda_version",
      .version = kGraphPluginVersion,
      .fix = "build Reigen with LibTorch where nvcc 12.4 or newer is, and put libreigen_torch_cuda.so where "
             "LD_LIBRARY_PATH looks; or leave train.graph out",
  });
  GraphCalls calls{};
  plugin.find(calls.make, "reigen_graph_make");
  plugin.find(calls.begin, "reigen_graph_begin");
  plugin.find(calls.end, "reigen_graph_end");
  plugin.find(calls.replay, "reigen_graph_replay");
  plugin.find(calls.destroy, "reigen_graph_destroy");
  base::log_info("CUDA graphs in {}", plugin.path());
  return calls;
}

}  // namespace

// A process can load a library only once, so the whole process has one table of its functions.
const GraphCalls& graph_calls() {
  static const GraphCalls kPlugin = open_graphs();
  return kPlugin;
}

}  // namespace reigen::tensor
