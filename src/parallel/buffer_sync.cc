#include "parallel/buffer_sync.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "reigen/tensor/data_type.h"

namespace reigen::parallel {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

BufferSync::BufferSync(const std::vector<at::Tensor>& buffers, Communicator world) : world_(std::move(world)) {
  for (const at::Tensor& buffer : buffers) {
    REIGEN_CHECK(buffer.layout() == at::kStrided && buffer.device().is_cpu(),
                 "[data_parallel] a buffer must be a dense tensor on the CPU");
    if (buffer.numel() > 0) buffers_.push_back(buffer);
  }
  std::stable_sort(buffers_.begin(), buffers_.end(),
                   [](const at::Tensor& a, const at::Tensor& b) { return a.scalar_type() < b.scalar_type(); });
  std::vector<std::size_t> offsets;
  for (const at::Tensor& buffer : buffers_) {
    if (stretches_.empty() || stretches_.back().type != buffer.scalar_type()) {
      stretches_.push_back({.type = buffer.scalar_type(), .begin = bytes_, .end = bytes_});
    }
    offsets.push_back(bytes_);
    bytes_ = (bytes_ + buffer.nbytes() + kAlignment - 1) / kAlignment * kAlignment;
    stretches_.back().end = bytes_;
  }
  if (bytes_ == 0 || world_.size() == 1) return;
  staging_ = world_.allocate(bytes_);
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    places_.push_back(at::from_blob(static_cast<char*>(staging_.get()) + offsets[i], buffers_[i].sizes(),
                                    at::TensorOptions().dtype(buffers_[i].scalar_type())));
  }
}

void BufferSync::copy_in() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) places_[i].copy_(buffers_[i]);
}

// variable_data() returns a tensor with the same memory and its own version counter, so the copy does not change the
// buffer's counter.
void BufferSync::copy_out() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].variable_data().copy_(places_[i]);
}

void BufferSync::broadcast(const std::string& tag, int root) {
  if (buffers_.empty()) return;
  const at::NoGradGuard no_grad;
  if (world_.rank() == root) copy_in();
  world_.broadcast(staging_.get(), bytes_, DataType::kUint8, root, {.tag = tag});
  if (world_.rank() != root) copy_out();
}

void BufferSync::average(const std::string& tag, const Contributors& contributors) {
  if (buffers_.empty()) return;
  const at::NoGradGuard no_grad;
  if (contributors.from_here) {
    copy_in();
  } else {
    std::memset(staging_.get(), 0, bytes_);
  }
  const double correction = static_cast<double>(world_.size()) / contributors.ranks;
  for (const Stretch& stretch : stretches_) {
    char* data = static_cast<char*>(staging_.get()) + stretch.begin;
    const std::size_t bytes = stretch.end - stretch.begin;
    if (at::isFloatingType(stretch.type)) {
      world_.all_reduce(data, data, bytes / c10::elementSize(stretch.type), tensor::to_data_type(stretch.type),
                        ReduceOp::kAvg, {.tag = tag});
    } else {
      world_.broadcast(data, bytes, DataType::kUint8, contributors.first, {.tag = tag});
    }
  }
  if (contributors.ranks < world_.size()) {
    for (const at::Tensor& place : places_) {
      if (place.is_floating_point()) place.mul_(correction);
    }
  }
  copy_out();
}

}  // namespace reigen::parallel
