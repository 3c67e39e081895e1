#include "optim/passes/device_pass.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <cstring>

#include "device/cuda.h"
#include "device/kernels.h"
#include "tensor/calls.h"

namespace reigen::optim {

// The table is copied to the GPU from pinned memory, so the host does not wait for the copy. LibTorch's allocators
// reuse the pinned memory and the GPU's memory only after the stream has used them.
void enqueue_runs(const at::Device& device, kernels::Rule rule, std::span<const std::byte> table,
                  std::size_t item_bytes, const std::vector<DeviceRun>& runs, const DevicePass& pass) {
  const c10::DeviceGuard guard(device);
  const at::Tensor pinned =
      at::empty({static_cast<std::int64_t>(table.size())}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  std::memcpy(pinned.mutable_data_ptr(), table.data(), table.size());
  const at::Tensor items = pinned.to(device, /*non_blocking=*/true);
  auto* const squares = pass.squares.defined() ? pass.squares.mutable_data_ptr<double>() : nullptr;
  const auto* const begin = static_cast<const std::byte*>(items.const_data_ptr());
  const Stream stream = tensor::stream_of(items);
  for (const DeviceRun& run : runs) {
    const device::OptimizeCall call{.rule = static_cast<int>(rule),
                                    .layout = static_cast<int>(run.layout),
                                    .items = begin + run.first * item_bytes,
                                    .count = run.count,
                                    .chunks = run.chunks,
                                    .chunk_elements = tensor::kBlockElements,
                                    .squares = squares,
                                    .control = pass.control};
    device::check(device::kernels().optimize(&call, device::handle_of(stream)), "a kernel of an optimizer");
  }
}

at::Tensor place_for_squares(const at::Device& device, std::int64_t chunks) {
  return at::empty({2 * chunks}, at::TensorOptions().dtype(at::kDouble).device(device));
}

std::vector<kernels::Squares> to_host(const at::Tensor& squares) {
  static_assert(sizeof(kernels::Squares) == 2 * sizeof(double));
  const at::Tensor here = squares.cpu();
  std::vector<kernels::Squares> result(static_cast<std::size_t>(squares.numel() / 2));
  std::memcpy(result.data(), here.const_data_ptr(), here.nbytes());
  return result;
}

}  // namespace reigen::optim
