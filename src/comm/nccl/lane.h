// One end of a lane. A lane carries the messages from one rank to another. It has an NCCL communicator of the two ranks
// and a stream of its own, so that a message waits only for messages of the same lane. NCCL runs the sends and recvs of
// a communicator in the order in which they were enqueued. On a lane this order is the same at both ends.
//
// The two ends find each other through the store at the first message: the sender makes the communicator's identity and
// writes it to the store.
// Thread rule: as each member says. "Caller": the thread that makes a call, which holds the Engine's queue_mutex_.
// "Driver": the driver thread. "Courier": the thread of courier.h, which holds the courier's lock.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "comm/call/tag.h"
#include "comm/nccl/group.h"
#include "reigen/comm/types.h"
#include "reigen/store/store.h"

namespace reigen::comm::nccl {

inline constexpr std::size_t kShortMessage = 1024;  // bytes of data
inline constexpr std::size_t kWindow = 64;          // the most messages that a sender may be ahead of the receiver

// Every message begins with a frame. The frame contains the data of a short message.
struct Frame {
  std::uint64_t count = 0;
  DataType type = DataType::kUint8;
  Tag tag = {};
  alignas(8) std::byte data[kShortMessage] = {};
};

// The transfer of a frame, or of the data of a longer message, over a lane.
struct Transfer {
  explicit Transfer(int device) : done(device) {}

  std::byte* data = nullptr;  // on the device
  std::size_t bytes = 0;
  std::byte* pinned = nullptr;                // if set: a received frame is copied to this host memory
  std::shared_ptr<device::Event> after = {};  // on the device, the transfer begins after this event
  std::atomic<bool> is_enqueued{false};       // set when `done` is on the stream
  device::Event done;                         // on the device, the end of the transfer

  bool is_done() const { return is_enqueued.load() && done.is_done("a message"); }
};

class Lane {
 public:
  // Caller. If `sends` is true, this rank is the sender `from`; otherwise it is the receiver `to`.
  Lane(int device, int from, int to, bool sends);

  // Driver. Queues the transfer after those that were pushed before.
  void push(std::shared_ptr<Transfer> transfer) { queue_.push_back(std::move(transfer)); }

  // Courier, without its lock. Calls the store once: the sender writes the communicator's identity, the receiver looks
  // for it. Returns the identity if it is known now.
  std::optional<std::string> ask(store::Store& store) const;
  bool is_asking() const { return state_ == State::kAsking; }
  void connect(const std::string& identity);
  // Courier. Advances the lane by one step, such as giving a transfer to NCCL. Returns false if no step is possible
  // now.
  bool advance();
  bool is_busy() const { return state_ != State::kOpen || !queue_.empty(); }

  bool is_open() const { return state_ == State::kOpen; }
  Handle& handle() { return handle_; }
  const device::OwnStream& stream() const { return stream_; }

  // `called` is for the caller: the number of messages called so far. `next` is for the driver: the number of the
  // message whose turn it is.
  std::uint64_t called = 0;
  std::uint64_t next = 0;

  // Driver. A slot is room for a frame in pinned host memory and on the device. A sender has kWindow slots, a receiver
  // has one.
  struct Slot {
    Frame* pinned;
    std::byte* device;
    std::shared_ptr<Transfer>* last;  // the last transfer that used the slot
  };
  Slot slot(std::uint64_t number);
  // Driver. Whether the receiver has all frames that this end sent.
  bool is_delivered() const;

 private:
  enum class State { kAsking, kConnecting, kOpen };
  static constexpr std::size_t kFrame = (sizeof(Frame) + 63) / 64 * 64;

  void enqueue(Transfer& transfer);

  const int from_;
  const int to_;
  const bool sends_;
  const std::size_t slots_;
  State state_ = State::kAsking;
  device::OwnStream stream_;
  std::shared_ptr<void> device_;  // the slots on the device
  std::shared_ptr<void> pinned_;  // the slots on the host
  std::array<std::shared_ptr<Transfer>, kWindow> frames_;
  std::deque<std::shared_ptr<Transfer>> queue_;
  bool under_way_ = false;  // the first transfer of the queue was given to NCCL
  Handle handle_;           // last member, so that it is destroyed before the stream
};

}  // namespace reigen::comm::nccl
