// Runs a rule of kernels/kernels.h over parameters on a GPU: one kernel for each run of parameters with the same
// element layout. The kernels come after the work that is on LibTorch's current stream of the GPU, and before work that
// is put on it later.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "optim/kernels/kernels.h"
#include "reigen/tensor/parameter_range.h"

namespace reigen::optim {

// One parameter, or this rank's share of it. The addresses of `block` are addresses of the GPU.
template <class Step>
struct DevicePart {
  kernels::Layout layout = kernels::Layout::kFloat32;
  kernels::Block block = {};
  Step step = {};
};

// Neighbours with one element layout: items [first, first + count) of a table, and the number of their chunks.
struct DeviceRun {
  kernels::Layout layout = kernels::Layout::kFloat32;
  std::size_t first = 0;
  int count = 0;
  std::int64_t chunks = 0;
};

inline std::int64_t chunks_of(std::int64_t elements) {
  return (elements + tensor::kBlockElements - 1) / tensor::kBlockElements;
}

// Enqueues the kernels. `table`: the bytes of the items, each of `item_bytes`. If `adds_squares`, waits for the
// kernels, and returns the sums of all chunks in order. Throws BackendError if CUDA refuses a kernel.
std::vector<kernels::Squares> enqueue_runs(const at::Device& device, kernels::Rule rule, bool adds_squares,
                                           std::span<const std::byte> table, std::size_t item_bytes,
                                           const std::vector<DeviceRun>& runs);

// Runs `rule` on all parts. If `adds_squares`, returns the sums of each chunk of kBlockElements elements, part by part.
template <class Step>
std::vector<kernels::Squares> run_on_device(const at::Device& device, kernels::Rule rule, bool adds_squares,
                                            const std::vector<DevicePart<Step>>& parts) {
  std::vector<kernels::Item<Step>> items;
  std::vector<DeviceRun> runs;
  for (const DevicePart<Step>& part : parts) {
    if (part.block.count == 0) continue;
    if (runs.empty() || runs.back().layout != part.layout)
      runs.push_back({.layout = part.layout, .first = items.size()});
    DeviceRun& run = runs.back();
    items.push_back({part.block, part.step, run.chunks});
    ++run.count;
    run.chunks += chunks_of(part.block.count);
  }
  if (runs.empty()) return {};
  return enqueue_runs(device, rule, adds_squares, std::as_bytes(std::span(items)), sizeof(kernels::Item<Step>), runs);
}

}  // namespace reigen::optim
