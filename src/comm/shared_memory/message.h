// Send and recv over shared memory. Messages from one rank to another are received in the order in which they were
// sent.
//
// A message takes one of three paths:
// Inline (up to kMessageInlineBytes): the sender copies the message into its PairBox, the shared memory for messages
//   between the two ranks (page.h), and is done. The receiver copies the message out of the box.
// Direct (a larger message in the sender's heap or in common memory): the receiver copies the message once, from the
//   sender's buffer.
// Staged (every other message): the message is sent in chunks through a staging buffer of the sender. The sender fills
//   one chunk while the receiver drains the other.
// For messages in a device's memory (medium.h), the staging buffer lies in the device's memory too, and inline messages
// lie in it after the chunks. A rank reports a copy to the other rank only when its device has done the copy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/call/checked_operation.h"
#include "comm/shared_memory/group.h"

namespace reigen::comm::shared_memory {

// State that the messages between this rank and one other rank share. Only the driver thread uses it, except for
// `sends` and `recvs`, which the calling thread counts.
struct Pair {
  std::uint64_t sends = 0;             // number of sends called so far
  std::uint64_t recvs = 0;             // number of recvs called so far
  std::uint64_t next_send = 0;         // number of the send whose turn it is
  std::uint64_t next_recv = 0;         // number of the recv whose turn it is
  std::uint64_t filled = 0;            // chunks of all earlier staged sends
  std::uint64_t drained = 0;           // chunks of all earlier staged recvs
  std::shared_ptr<void> staging = {};  // allocated at the first staged send; on a device, also for inline sends
};

class Message : public CheckedOperation {
 public:
  bool try_post() override { return true; }
  bool precede(const Stream& stream) override { return group_.lets_follow(stream) && precede_by(job_, stream); }
  void check_peers(std::chrono::nanoseconds waited) const override;

 protected:
  Message(Group& group, Pair& pair, const Call& call, std::uint64_t number)
      : group_(group),
        pair_(pair),
        call_(call),
        number_(number),
        job_(group.medium() ? group.medium()->begin() : nullptr) {}

  std::string describe() const;
  // own_box(): this rank's box for the other rank. other_box(): the other rank's box for this rank.
  PairBox& own_box() const { return group_.box(group_.rank(), call_.root); }
  PairBox& other_box() const { return group_.box(call_.root, group_.rank()); }
  std::size_t slot() const { return number_ % kMessageSlots; }
  std::uint64_t chunk_count() const { return (call_.bytes() + kMessageChunkBytes - 1) / kMessageChunkBytes; }
  // Chunk `index` of this message: its begin in the message, its size, and its begin in the staging buffer, in bytes.
  // `first`: the number of chunks of all earlier staged messages.
  struct Chunk {
    std::size_t begin;
    std::size_t bytes;
    std::size_t staged;
  };
  Chunk chunk(std::uint64_t index, std::uint64_t first) const;
  // Copies, or asks the device to copy. Returns true when the copy is done. If it returns false, call it again with the
  // same arguments.
  bool copy(void* to, const void* from, std::size_t bytes);

  Group& group_;
  Pair& pair_;
  const Call& call_;
  const std::uint64_t number_;
  const std::unique_ptr<Job> job_;  // null for host memory: the driver thread copies
  bool is_copying_ = false;         // the device was asked for a copy that is not done yet
};

class Send : public Message {
 public:
  Send(Group& group, Pair& pair, const Call& call) : Message(group, pair, call, pair.sends) {
    pair.sends += 1;  // counted after Message(), which may throw, so that a call that fails gets no number
  }
  Step advance() override;
  bool is_its_turn() const override { return phase_ != Phase::kAnnouncing || pair_.next_send == number_; }

 private:
  enum class Phase { kAnnouncing, kFilling, kTaking };
  bool announce();
  bool fill_inline();
  void make_staging();
  Step fill();

  Phase phase_ = Phase::kAnnouncing;
  MessagePath path_ = MessagePath::kInline;
  std::uint64_t done_ = 0;  // chunks of this message that are filled
};

class Recv : public Message {
 public:
  Recv(Group& group, Pair& pair, const Call& call) : Message(group, pair, call, pair.recvs) {
    pair.recvs += 1;  // counted after Message(), as in Send
  }
  Step advance() override;
  bool is_its_turn() const override { return pair_.next_recv == number_; }

 private:
  const std::byte* reach(const Location& location) const;
  void compare() const;
  Step drain();
  Step finish();

  bool draining_ = false;
  std::uint64_t done_ = 0;  // chunks of this message that are drained
};

}  // namespace reigen::comm::shared_memory
