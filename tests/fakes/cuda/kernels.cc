// The kernels of the plug-in, computed on the host when the stream reaches them.
#include "device/kernels.h"

#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "comm/reduce/reduce.h"
#include "fakes/cuda/device.h"
#include "fakes/cuda/stand_in.h"

namespace reigen::device {

namespace {

namespace stand_in = reigen::testing::stand_in;

int reduce(const ReduceCall* call, void* stream) {
  if (call->input_count > kReduceRanks || call->output_count > kReduceRanks) return cudaErrorInvalidValue;
  const auto type = static_cast<comm::DataType>(call->type);
  const auto op = static_cast<comm::ReduceOp>(call->op);
  const std::size_t bytes = call->count * comm::size_of(type);
  const int device = stand_in::queue_of(static_cast<cudaStream_t>(stream)).device();
  std::vector<const void*> inputs(call->inputs, call->inputs + call->input_count);
  std::vector<void*> outputs(call->outputs, call->outputs + call->output_count);
  for (const void* input : inputs) stand_in::require_memory(input, bytes, device, "an input of a reduction");
  for (const void* output : outputs) stand_in::require_memory(output, bytes, device, "an output of a reduction");
  std::vector<double> factors;
  if (call->factors != nullptr) factors.assign(call->factors, call->factors + call->input_count);
  stand_in::queue_of(static_cast<cudaStream_t>(stream)).push([=, copy = *call] {
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (const void* input : inputs) from.push_back(stand_in::reach(input));
    for (const void* output : outputs) to.push_back(stand_in::reach(output));
    comm::reduce::run({.inputs = from.data(),
                       .outputs = to.data(),
                       .input_count = copy.input_count,
                       .output_count = copy.output_count,
                       .count = copy.count,
                       .type = type,
                       .op = op,
                       .factors = factors.empty() ? nullptr : factors.data(),
                       .divisor = copy.divisor});
  });
  return cudaSuccess;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels kTable{.reduce = &reduce};
  return kTable;
}

const std::string& kernels_path() {
  static const std::string kPath = "a stand-in";
  return kPath;
}

}  // namespace reigen::device
