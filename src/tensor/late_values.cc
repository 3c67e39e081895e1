#include "tensor/late_values.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <chrono>
#include <thread>

#include "tensor/calls.h"

namespace reigen::tensor {

LateValues::LateValues(const at::Tensor& values) : copied_(std::make_unique<device::Event>(values.device().index())) {
  const c10::DeviceGuard guard(values.device());
  here_ = at::empty(values.sizes(), at::TensorOptions().dtype(at::kDouble).pinned_memory(true));
  here_.copy_(values, /*non_blocking=*/true);
  copied_->record(device::handle_of(stream_of(values)));
}

// Usually the copy was done long ago. If not, the host is a step ahead of the GPU. The GPU then has work for much
// longer than the host sleeps here, so the sleep delays nothing.
std::span<const double> LateValues::wait() {
  constexpr std::chrono::microseconds kBetween(20);
  while (!copied_->is_done("numbers of a step")) std::this_thread::sleep_for(kBetween);
  return {here_.const_data_ptr<double>(), static_cast<std::size_t>(here_.numel())};
}

}  // namespace reigen::tensor
