#include "device/kernels.h"

#include <fmt/format.h>

#include <string>

#include "base/log.h"
#include "device/cuda_runtime.h"
#include "device/library.h"
#include "reigen/base/error.h"

namespace reigen::device {

namespace {

struct Opened {
  Kernels table = {};
  std::string path = {};
};

Opened open_plugin() {
  (void)cuda_runtime();  // opened first, because the plug-in uses its functions
  const std::string fix =
      "build Reigen where nvcc 12.4 or newer is (-DREIGEN_CUDA=ON says why there is none), and put libreigen_cuda.so "
      "where LD_LIBRARY_PATH looks; or stay with the cpu";
  const Library plugin(
      {.name = "Reigen's plug-in of kernels", .files = {"libreigen_cuda.so"}, .folders = plugin_folders(), .fix = fix});
  decltype(&reigen_cuda_version) version = nullptr;
  plugin.find(version, "reigen_cuda_version");
  if (version() != kPluginVersion) {
    throw BackendError(Report{.what = "the plug-in of kernels belongs to another version of Reigen",
                              .got = fmt::format("{} in {}", version(), plugin.path()),
                              .expected = fmt::format("{}", kPluginVersion),
                              .fix = fix});
  }
  Kernels table{};
  plugin.find(table.reduce, "reigen_cuda_reduce");
  plugin.find(table.optimize, "reigen_cuda_optimize");
  plugin.find(table.finish_norm, "reigen_cuda_finish_norm");
  plugin.find(table.norm, "reigen_cuda_norm");
  plugin.find(table.norm_backward, "reigen_cuda_norm_backward");
  plugin.find(table.norm_sums, "reigen_cuda_norm_sums");
  plugin.find(table.cross_entropy, "reigen_cuda_cross_entropy");
  plugin.find(table.multiply, "reigen_cuda_multiply");
  plugin.find(table.gelu, "reigen_cuda_gelu");
  plugin.find(table.gelu_backward, "reigen_cuda_gelu_backward");
  plugin.find(table.swiglu, "reigen_cuda_swiglu");
  plugin.find(table.swiglu_backward, "reigen_cuda_swiglu_backward");
  plugin.find(table.rotary, "reigen_cuda_rotary");
  plugin.find(table.embedding_sums, "reigen_cuda_embedding_sums");
  base::log_info("kernels in {}", plugin.path());
  return {table, plugin.path()};
}

// A process can load a library only once, so the whole process has one table of its functions.
const Opened& opened() {
  static const Opened kPlugin = open_plugin();
  return kPlugin;
}

}  // namespace

const Kernels& kernels() { return opened().table; }

const std::string& kernels_path() { return opened().path; }

}  // namespace reigen::device
