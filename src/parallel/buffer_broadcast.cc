#include "parallel/buffer_broadcast.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "base/check.h"

namespace reigen::parallel {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

BufferBroadcast::BufferBroadcast(const std::vector<at::Tensor>& buffers, Communicator world)
    : world_(std::move(world)) {
  std::vector<std::size_t> offsets;
  for (const at::Tensor& buffer : buffers) {
    REIGEN_CHECK(buffer.layout() == at::kStrided && buffer.device().is_cpu(),
                 "[data_parallel] a buffer must be a dense tensor on the CPU");
    offsets.push_back(bytes_);
    bytes_ = (bytes_ + buffer.nbytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (bytes_ == 0 || world_.size() == 1) return;
  staging_ = world_.allocate(bytes_);
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].numel() == 0) continue;
    buffers_.push_back(buffers[i]);
    places_.push_back(at::from_blob(static_cast<char*>(staging_.get()) + offsets[i], buffers[i].sizes(),
                                    at::TensorOptions().dtype(buffers[i].scalar_type())));
  }
}

void BufferBroadcast::run(const std::string& tag) {
  if (buffers_.empty()) return;
  at::NoGradGuard no_grad;
  const bool is_root = world_.rank() == 0;
  for (std::size_t i = 0; is_root && i < buffers_.size(); ++i) places_[i].copy_(buffers_[i]);
  world_.broadcast(staging_.get(), bytes_, DataType::kUint8, 0, {.tag = tag});
  // variable_data() is the same memory with a version counter of its own.
  for (std::size_t i = 0; !is_root && i < buffers_.size(); ++i) buffers_[i].variable_data().copy_(places_[i]);
}

}  // namespace reigen::parallel
