// Send and recv over shared memory. Messages from one rank to another are received in the order in which they were
// sent.
//
// Inline (up to kMessageInlineBytes): the sender copies the message into its box and is done; the receiver copies the
//   message out of the box.
// Direct (the sender's buffer lies in its heap or in common memory): the receiver copies the message once, from that
//   buffer.
// Staged: the message is sent in chunks through a staging buffer of the sender. The sender fills one chunk while the
//   receiver drains the other.
// Memory of a device (medium.h): the staging buffer lies in the device's memory, and inline messages lie after its
// chunks. A rank that copies waits for its device before it announces that it has copied.
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
  std::uint64_t sends = 0;             // sends called
  std::uint64_t recvs = 0;             // recvs called
  std::uint64_t next_send = 0;         // number of the send whose turn it is
  std::uint64_t next_recv = 0;         // number of the recv whose turn it is
  std::uint64_t filled = 0;            // chunks of all earlier staged sends
  std::uint64_t drained = 0;           // chunks of all earlier staged recvs
  std::shared_ptr<void> staging = {};  // made at the first staged send; on a device, also at the first inline send
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
  // The box in which this rank writes for the other rank, and the box in which the other rank writes for this one.
  PairBox& own_box() const { return group_.box(group_.rank(), call_.root); }
  PairBox& other_box() const { return group_.box(call_.root, group_.rank()); }
  std::size_t slot() const { return number_ % kMessageSlots; }
  std::uint64_t chunk_count() const { return (call_.bytes() + kMessageChunkBytes - 1) / kMessageChunkBytes; }
  // Chunk `index` of this message: its begin in the message, its size, and its begin in the staging buffer. `first`:
  // the number of chunks of all earlier staged messages.
  struct Chunk {
    std::size_t begin;
    std::size_t bytes;
    std::size_t staged;
  };
  Chunk chunk(std::uint64_t index, std::uint64_t first) const;
  // Copies, or asks the device to copy. Returns true when the copy is done. After false, call it again with the same
  // arguments.
  bool copy(void* to, const void* from, std::size_t bytes);

  Group& group_;
  Pair& pair_;
  const Call& call_;
  const std::uint64_t number_;
  const std::unique_ptr<Job> job_;  // null: the driver thread copies
  bool is_copying_ = false;         // the job contains the copy
};

class Send : public Message {
 public:
  Send(Group& group, Pair& pair, const Call& call) : Message(group, pair, call, pair.sends) {
    pair.sends += 1;  // counted last, so that a refused call gets no number
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
  std::uint64_t done_ = 0;  // chunks
};

class Recv : public Message {
 public:
  Recv(Group& group, Pair& pair, const Call& call) : Message(group, pair, call, pair.recvs) {
    pair.recvs += 1;  // last, as in Send
  }
  Step advance() override;
  bool is_its_turn() const override { return pair_.next_recv == number_; }

 private:
  const std::byte* reach(const Location& location) const;
  void compare() const;
  Step drain();
  Step finish();

  bool draining_ = false;
  std::uint64_t done_ = 0;  // chunks
};

}  // namespace reigen::comm::shared_memory
