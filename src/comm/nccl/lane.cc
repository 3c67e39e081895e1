#include "comm/nccl/lane.h"

#include <fmt/format.h>

#include <algorithm>

namespace reigen::comm::nccl {

namespace {

constexpr int kBlocks = 4;  // thread blocks of a lane's kernel: few, because many kernels may wait at once

}  // namespace

Lane::Lane(int device, int from, int to, bool sends)
    : from_(from),
      to_(to),
      sends_(sends),
      slots_(sends ? kWindow : 1),
      stream_(device),
      device_(device::allocate(device, slots_ * kFrame)),
      pinned_(device::allocate_pinned(slots_ * kFrame)) {}

std::optional<std::string> Lane::ask(store::Store& store) const {
  const std::string key = fmt::format("{}>{}", from_, to_);
  if (sends_) {
    const std::string identity = new_identity();
    store.set(key, identity);
    return identity;
  }
  auto identity = store.try_get(key);
  if (identity) store.erase(key);
  return identity;
}

void Lane::connect(const std::string& identity) {
  handle_.begin(identity, 2, sends_ ? 0 : 1, kBlocks);
  state_ = State::kConnecting;
}

bool Lane::advance() {
  if (state_ == State::kAsking || (state_ == State::kOpen && queue_.empty())) return false;
  if (!handle_.settled("a message")) return false;
  if (state_ == State::kConnecting) {
    state_ = State::kOpen;
    return true;
  }
  Transfer& transfer = *queue_.front();
  if (!under_way_) {
    under_way_ = true;
    enqueue(transfer);
    return true;
  }
  if (!sends_ && transfer.pinned != nullptr) {
    device::check(device::cuda_runtime().memcpy_async(transfer.pinned, transfer.data, transfer.bytes,
                                                      device::kCudaDeviceToHost, stream_.get()),
                  "cudaMemcpyAsync");
  }
  transfer.done.record(stream_.get());
  transfer.is_enqueued.store(true);
  queue_.pop_front();
  under_way_ = false;
  return true;
}

void Lane::enqueue(Transfer& transfer) {
  if (transfer.after) transfer.after->precede(stream_.get());
  cudaStream_t stream = of_cuda(stream_.get());
  if (!sends_) {
    check(api().nccl_recv(transfer.data, transfer.bytes, ncclUint8, 0, handle_.get(), stream), "ncclRecv",
          handle_.get());
    return;
  }
  check(api().nccl_send(transfer.data, transfer.bytes, ncclUint8, 1, handle_.get(), stream), "ncclSend", handle_.get());
}

Lane::Slot Lane::slot(std::uint64_t number) {
  const std::size_t at = number % slots_;
  return {reinterpret_cast<Frame*>(static_cast<std::byte*>(pinned_.get()) + at * kFrame),
          static_cast<std::byte*>(device_.get()) + at * kFrame, &frames_[at]};
}

bool Lane::is_delivered() const {
  if (!sends_) return true;
  return std::all_of(frames_.begin(), frames_.end(), [](const auto& last) { return !last || last->is_done(); });
}

}  // namespace reigen::comm::nccl
