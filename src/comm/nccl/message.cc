#include "comm/nccl/message.h"

#include <algorithm>
#include <utility>

#include "comm/call/mismatch_reports.h"

namespace reigen::comm::nccl {

namespace {

void copy(void* to, const void* from, std::size_t bytes, int kind, device::CudaStream stream) {
  device::check(device::cuda_runtime().memcpy_async(to, from, bytes, kind, stream), "cudaMemcpyAsync");
}

bool is_free(const std::shared_ptr<Transfer>& last) { return !last || last->is_done(); }

}  // namespace

Message::Message(Messages& messages, Lane& lane, const Call& call)
    : messages_(messages), lane_(lane), call_(call), number_(lane.called) {
  const device::OnDevice on(messages.group.device);
  ready_ = std::make_shared<device::Event>(messages.group.device);
  ready_->record(device::handle_of(call_.after));
  lane.called += 1;  // last, so that a call that throws above gets no number
}

void Message::check_peers(std::chrono::nanoseconds waited) const {
  messages_.group.control->check_message(call_.root, describe_message(messages_.options, number_, call_), waited);
}

void Message::push_data(std::byte* data) {
  transfer_ = std::make_shared<Transfer>(messages_.group.device);
  transfer_->data = data;
  transfer_->bytes = call_.bytes();
  transfer_->after = ready_;
  messages_.courier.push(lane_, transfer_);
}

Send::Send(Messages& messages, const Call& call) : Message(messages, messages.courier.lane_to(call.root), call) {}

// Begins the send if a slot of the lane (room for a frame) is free and all earlier messages have begun. Otherwise
// returns false.
bool Send::begin() {
  const Lane::Slot slot = lane_.slot(number_);
  if (lane_.next != number_ || !is_free(*slot.last)) return false;
  *slot.pinned = {.count = call_.count, .type = call_.type, .tag = Tag(call_.tag)};
  device::CudaStream stream = messages_.copies.get();
  copy(slot.device, slot.pinned, sizeof(Frame), device::kCudaHostToDevice, stream);
  if (is_short() && call_.count > 0) {
    ready_->precede(stream);
    copy(slot.device + offsetof(Frame, data), call_.input, call_.bytes(), device::kCudaDeviceToDevice, stream);
  }
  filled_ = std::make_shared<device::Event>(messages_.group.device);
  filled_->record(stream);
  auto frame = std::make_shared<Transfer>(messages_.group.device);
  frame->data = slot.device;
  frame->bytes = sizeof(Frame);
  frame->after = filled_;
  *slot.last = frame;
  messages_.courier.push(lane_, std::move(frame));
  if (!is_short()) push_data(static_cast<std::byte*>(const_cast<void*>(call_.input)));
  lane_.next += 1;
  return true;
}

Step Send::advance() {
  const device::OnDevice on(messages_.group.device);
  messages_.courier.throw_if_failed();
  if (!begun_) {
    begun_ = begin();
    return begun_ ? Step::kMoved : Step::kBlocked;
  }
  const bool done = is_short() ? filled_->is_done("send") : transfer_->is_done();
  return done ? Step::kDone : Step::kBlocked;
}

Recv::Recv(Messages& messages, const Call& call) : Message(messages, messages.courier.lane_from(call.root), call) {}

void Recv::expect_frame() {
  const Lane::Slot slot = lane_.slot(number_);
  transfer_ = std::make_shared<Transfer>(messages_.group.device);
  transfer_->data = slot.device;
  transfer_->bytes = sizeof(Frame);
  transfer_->pinned = reinterpret_cast<std::byte*>(slot.pinned);
  messages_.courier.push(lane_, transfer_);
}

void Recv::compare() const {
  const Frame& frame = *lane_.slot(number_).pinned;
  compare_message(messages_.options, number_, call_, {frame.count, frame.type, frame.tag});
}

Step Recv::take_short() {
  const Lane::Slot slot = lane_.slot(number_);
  if (call_.count == 0) return finish();
  device::CudaStream stream = messages_.copies.get();
  ready_->precede(stream);
  copy(call_.output, slot.device + offsetof(Frame, data), call_.bytes(), device::kCudaDeviceToDevice, stream);
  copied_.record(stream);
  phase_ = Phase::kCopying;
  return Step::kMoved;
}

Step Recv::finish() {
  lane_.next += 1;
  return Step::kDone;
}

Step Recv::advance() {
  const device::OnDevice on(messages_.group.device);
  messages_.courier.throw_if_failed();
  if (!is_its_turn()) return Step::kBlocked;
  switch (phase_) {
    case Phase::kFirst:
      expect_frame();
      phase_ = Phase::kFrame;
      return Step::kMoved;
    case Phase::kFrame:
      if (!transfer_->is_done()) return Step::kBlocked;
      compare();
      if (is_short()) return take_short();
      push_data(static_cast<std::byte*>(call_.output));
      phase_ = Phase::kData;
      return Step::kMoved;
    case Phase::kData:
      if (!transfer_->is_done()) return Step::kBlocked;
      return finish();
    case Phase::kCopying: return copied_.is_done("recv") ? finish() : Step::kBlocked;
  }
  return Step::kDone;
}

}  // namespace reigen::comm::nccl
