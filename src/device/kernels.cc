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

Opened open_kernels() {
  (void)cuda_runtime();  // opened first, because the plug-in uses its functions
  const Library plugin = open_plugin({
      .name = "plug-in of kernels",
      .file = "libreigen_cuda.so",
      .version_symbol = "reigen_cuda_version",
      .version = kPluginVersion,
      .fix = "build Reigen where nvcc 12.4 or newer is (-DREIGEN_CUDA=ON says why there is none), and put "
             "libreigen_cuda.so where LD_LIBRARY_PATH looks; or stay with the cpu",
  });
  Kernels table{};
  plugin.find(table.reduce, "reigen_cuda_reduce");
  plugin.find(table.optimize, "reigen_cuda_optimize");
  plugin.find(table.finish_norm, "reigen_cuda_finish_norm");
  plugin.find(table.norm, "reigen_cuda_norm");
  plugin.find(table.norm_backward, "reigen_cuda_norm_backward");
  plugin.find(table.norm_sums, "reigen_cuda_norm_sums");
  plugin.find(table.batch_statistics, "reigen_cuda_batch_statistics");
  plugin.find(table.batch_norm, "reigen_cuda_batch_norm");
  plugin.find(table.batch_norm_sums, "reigen_cuda_batch_norm_sums");
  plugin.find(table.batch_norm_backward, "reigen_cuda_batch_norm_backward");
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
  static const Opened kPlugin = open_kernels();
  return kPlugin;
}

}  // namespace

const Kernels& kernels() { return opened().table; }

const std::string& kernels_path() { return opened().path; }

}  // namespace reigen::device
