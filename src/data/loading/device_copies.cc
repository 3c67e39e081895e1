#include "data/loading/device_copies.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <utility>
#include <vector>

namespace reigen::data {

c10::Stream new_stream(const c10::Device& gpu) {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getNewStream(gpu);
}

// The memory of batches that nobody has taken goes back to the current stream, so this stream waits for their copies.
DeviceCopies::~DeviceCopies() {
  try {
    for (Copy& copy : copies_) copy.done.block(current());
  } catch (const std::exception&) {
    // The GPU has failed: nothing on it will be used any more.
  }
}

c10::Stream DeviceCopies::current() const { return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getStream(gpu_); }

void DeviceCopies::add(Batch batch) {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Tensor, at::Tensor>> copied;  // to, from
  batch.transform([&](const at::Tensor& from) {
    if (from.device() == gpu_) return from;
    if (from.layout() != at::kStrided) return from.to(gpu_);
    copied.emplace_back(at::empty_like(from, from.options().device(gpu_).pinned_memory(false)), from);
    return copied.back().first;
  });
  c10::Event allocated(c10::DeviceType::CUDA);
  allocated.record(current());
  allocated.block(stream_);
  c10::Event done(c10::DeviceType::CUDA);
  {
    const c10::StreamGuard guard(stream_);
    for (auto& [to, from] : copied) to.copy_(from, /*non_blocking=*/true);
    done.record(stream_);
  }
  copies_.push_back({std::move(batch), std::move(done)});
}

Batch DeviceCopies::take() {
  Copy copy = std::move(copies_.front());
  copies_.pop_front();
  copy.done.block(current());
  return std::move(copy.batch);
}

}  // namespace reigen::data
