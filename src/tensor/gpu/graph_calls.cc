#include "tensor/gpu/graph_calls.h"

#include <fmt/format.h>

#include "base/log.h"
#include "device/kernels.h"
#include "device/library.h"
#include "reigen/base/error.h"
#include "tensor/gpu/torch_cuda.h"

namespace reigen::tensor {

namespace {

GraphCalls open_plugin() {
  open_torch_cuda();
  const std::string fix =
      "build Reigen with LibTorch where nvcc 12.4 or newer is, and put libreigen_torch_cuda.so where LD_LIBRARY_PATH "
      "looks; or leave train.graph out";
  const device::Library plugin({.name = "Reigen's plug-in for LibTorch's CUDA graphs",
                                .files = {"libreigen_torch_cuda.so"},
                                .folders = device::plugin_folders(),
                                .fix = fix});
  decltype(&reigen_torch_cuda_version) version = nullptr;
  plugin.find(version, "reigen_torch_cuda_version");
  if (version() != kGraphPluginVersion) {
    throw BackendError(Report{.what = "the plug-in for LibTorch's CUDA graphs belongs to another version of Reigen",
                              .got = fmt::format("{} in {}", version(), plugin.path()),
                              .expected = fmt::format("{}", kGraphPluginVersion),
                              .fix = fix});
  }
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
  static const GraphCalls kPlugin = open_plugin();
  return kPlugin;
}

}  // namespace reigen::tensor
