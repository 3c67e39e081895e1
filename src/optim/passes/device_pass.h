// Runs a rule of kernels/kernels.h over parameters on a GPU, with one kernel for each sequence of consecutive
// parameters that have the same element types. The kernels are enqueued on LibTorch's current stream of the GPU.
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
  std::int64_t first_sum = 0;  // index of the sums of its first chunk in DevicePass::squares
};

struct DevicePass {
  at::Tensor squares = {};                        // fp64: two numbers for each chunk, for rules that add squares
  const kernels::StepControl* control = nullptr;  // memory of the GPU, or null
};

// Consecutive parameters with the same element types: items [first, first + count) of the table of all items, and the
// number of the chunks of these items.
struct DeviceRun {
  kernels::Layout layout = kernels::Layout::kFloat32;
  std::size_t first = 0;
  int count = 0;
  std::int64_t chunks = 0;
};

inline std::int64_t chunks_of(std::int64_t elements) {
  return (elements + tensor::kBlockElements - 1) / tensor::kBlockElements;
}

// Enqueues one kernel for each of `runs`. `table` has the bytes of all items, `item_bytes` for each item. Throws
// BackendError if CUDA refuses a kernel.
void enqueue_runs(const at::Device& device, kernels::Rule rule, std::span<const std::byte> table,
                  std::size_t item_bytes, const std::vector<DeviceRun>& runs, const DevicePass& pass);

// Enqueues the kernels of `rule` for all parts.
template <class Step>
void run_on_device(const at::Device& device, kernels::Rule rule, const std::vector<DevicePart<Step>>& parts,
                   const DevicePass& pass = {}) {
  std::vector<kernels::Item<Step>> items;
  std::vector<DeviceRun> runs;
  for (const DevicePart<Step>& part : parts) {
    if (part.block.count == 0) continue;
    if (runs.empty() || runs.back().layout != part.layout)
      runs.push_back({.layout = part.layout, .first = items.size()});
    DeviceRun& run = runs.back();
    items.push_back({part.block, part.step, run.chunks, part.first_sum});
    ++run.count;
    run.chunks += chunks_of(part.block.count);
  }
  if (runs.empty()) return;
  enqueue_runs(device, rule, std::as_bytes(std::span(items)), sizeof(kernels::Item<Step>), runs, pass);
}

// Allocates memory on the GPU for the sums of `chunks` chunks. The memory is not initialised.
at::Tensor place_for_squares(const at::Device& device, std::int64_t chunks);
// Waits for the GPU, and returns the sums.
std::vector<kernels::Squares> to_host(const at::Tensor& squares);

// Runs a rule that adds squares, and waits for the GPU. Returns the sums of each chunk of kBlockElements elements, in
// the order of the parts.
template <class Step>
std::vector<kernels::Squares> sums_on_device(const at::Device& device, kernels::Rule rule,
                                             std::vector<DevicePart<Step>> parts) {
  std::int64_t chunks = 0;
  for (DevicePart<Step>& part : parts) {
    part.first_sum = chunks;
    chunks += chunks_of(part.block.count);
  }
  const DevicePass pass{.squares = place_for_squares(device, chunks)};
  run_on_device(device, rule, parts, pass);
  return to_host(pass.squares);
}

}  // namespace reigen::optim
