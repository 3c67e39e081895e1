// One direction between two ranks, at one of its ends: a communicator of the two and a stream of its own, so that
// messages wait for nothing but each other. NCCL takes what is sent and what is received in one order; here both ends
// have the same.
//
// The ends meet through the store when the first message is called: the sender makes the communicator's identity.
// Thread rule: as each member says. `caller`: under the engine's lock on calls; `driver`: who drives; `courier`: the
// thread of courier.h, with its lock.
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
inline constexpr std::size_t kWindow = 64;          // messages that a sender may be ahead of the receiver

// What every message begins with: the data of a short one is in it.
struct Frame {
  std::uint64_t count = 0;
  DataType type = DataType::kUint8;
  Tag tag = {};
  alignas(8) std::byte data[kShortMessage] = {};
};

// Bytes that go over a lane, and the copies before and after.
struct Transfer {
  explicit Transfer(int device) : done(device) {}

  std::byte* data = nullptr;  // on the device
  std::size_t bytes = 0;
  std::byte* pinned = nullptr;                // of a frame: where it goes on the host when it has come
  std::shared_ptr<device::Event> after = {};  // what must be done on the device before
  std::atomic<bool> is_enqueued{false};       // from then on `done` tells
  device::Event done;

  bool is_done() const { return is_enqueued.load() && done.is_done("a message"); }
};

class Lane {
 public:
  // caller. This rank is `from` when it sends, else `to`.
  Lane(int device, int from, int to, bool sends);

  // driver. Goes behind what was pushed before.
  void push(std::shared_ptr<Transfer> transfer) { queue_.push_back(std::move(transfer)); }

  // courier, without its lock: a step towards the other end. The communicator's identity, once it is known.
  std::optional<std::string> ask(store::Store& store) const;
  bool is_asking() const { return state_ == State::kAsking; }
  void connect(const std::string& identity);
  // courier. True when something has moved.
  bool advance();
  bool is_busy() const { return state_ != State::kOpen || !queue_.empty(); }

  bool is_open() const { return state_ == State::kOpen; }
  Handle& handle() { return handle_; }
  const device::OwnStream& stream() const { return stream_; }

  // caller, driver: messages so far, and whose turn it is.
  std::uint64_t called = 0;
  std::uint64_t next = 0;

  // driver. Room for a frame, at both of its places; the receiver needs one only.
  struct Slot {
    Frame* pinned;
    std::byte* device;
    std::shared_ptr<Transfer>* last;  // that used it
  };
  Slot slot(std::uint64_t number);
  // driver. Whether the receiver has all that was sent.
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
  std::shared_ptr<void> device_;  // the slots
  std::shared_ptr<void> pinned_;
  std::array<std::shared_ptr<Transfer>, kWindow> frames_;
  std::deque<std::shared_ptr<Transfer>> queue_;
  bool under_way_ = false;  // the first of the queue is with NCCL
  Handle handle_;           // last: ended before the stream
};

}  // namespace reigen::comm::nccl
