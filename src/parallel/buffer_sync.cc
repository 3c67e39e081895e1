#include "parallel/buffer_sync.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "reigen/comm/call_list.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/memory/shared_tensor.h"

namespace reigen::parallel {
namespace {

constexpr std::int64_t kAlignment = 64;

}  // namespace

BufferSync::BufferSync(const std::vector<at::Tensor>& buffers, Communicator world) : world_(std::move(world)) {
  if (world_.size() == 1) return;  // a single rank sends nothing
  for (const at::Tensor& buffer : buffers) {
    const bool fits = buffer.device().is_cpu() || buffer.device().is_cuda();
    REIGEN_CHECK(
        buffer.layout() == at::kStrided && fits && buffer.device() == buffers.front().device(),
        "[data_parallel] a buffer must be a dense tensor on the CPU or a GPU, as all others\n  got: device {}   "
        "expected: device {}",
        buffer.device().str(), buffers.front().device().str());
    if (buffer.numel() > 0) buffers_.push_back(buffer);
  }
  std::stable_sort(buffers_.begin(), buffers_.end(),
                   [](const at::Tensor& a, const at::Tensor& b) { return a.scalar_type() < b.scalar_type(); });
  std::vector<std::int64_t> offsets;
  std::int64_t bytes = 0;
  for (const at::Tensor& buffer : buffers_) {
    if (stretches_.empty() || stretches_.back().type != buffer.scalar_type()) {
      stretches_.push_back({.type = buffer.scalar_type(), .begin = bytes, .end = bytes});
    }
    offsets.push_back(bytes);
    bytes = (bytes + static_cast<std::int64_t>(buffer.nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
    stretches_.back().end = bytes;
  }
  if (bytes == 0) return;
  staging_ = tensor::shared_tensor(world_, bytes, at::kByte, buffers_.front().device());
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    places_.push_back(staging_.narrow(0, offsets[i], static_cast<std::int64_t>(buffers_[i].nbytes()))
                          .view(buffers_[i].scalar_type())
                          .view(buffers_[i].sizes()));
  }
}

void BufferSync::copy_in() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) places_[i].copy_(buffers_[i]);
}

// variable_data() returns a new tensor over the same memory, with a version counter of its own. So the copy does not
// change the buffer's version counter.
void BufferSync::copy_out() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].variable_data().copy_(places_[i]);
}

void BufferSync::broadcast(const std::string& tag, int root) {
  if (buffers_.empty()) return;
  const at::NoGradGuard no_grad;
  if (world_.rank() == root) copy_in();
  CallList calls;
  calls.broadcast(staging_.mutable_data_ptr(), staging_.nbytes(), DataType::kUint8, root,
                  {.tag = tag, .after = tensor::stream_of(staging_)});
  tensor::run_calls(world_, calls, staging_);
  if (world_.rank() != root) copy_out();
}

void BufferSync::average(const std::string& tag, const Contributors& contributors) {
  if (buffers_.empty()) return;
  const at::NoGradGuard no_grad;
  if (contributors.from_here) {
    copy_in();
  } else {
    staging_.zero_();
  }
  const double correction = static_cast<double>(world_.size()) / contributors.ranks;
  CallList calls;
  const comm::CallOptions options{.tag = tag, .after = tensor::stream_of(staging_)};
  for (const Stretch& stretch : stretches_) {
    auto* const data = static_cast<std::byte*>(staging_.mutable_data_ptr()) + stretch.begin;
    const auto bytes = static_cast<std::size_t>(stretch.end - stretch.begin);
    if (at::isFloatingType(stretch.type)) {
      calls.all_reduce(data, data, bytes / c10::elementSize(stretch.type), tensor::to_data_type(stretch.type),
                       ReduceOp::kAvg, options);
    } else {
      calls.broadcast(data, bytes, DataType::kUint8, contributors.first, options);
    }
  }
  tensor::run_calls(world_, calls, staging_);
  if (contributors.ranks < world_.size()) {
    for (const at::Tensor& place : places_) {
      if (place.is_floating_point()) place.mul_(correction);
    }
  }
  copy_out();
}

}  // namespace reigen::parallel
