// Send and recv over shared memory. Messages from one rank to another are taken in the order in which they were sent.
//
// Inline (up to kMessageInlineBytes): the sender copies it into its box and is done; the receiver copies it out.
// Direct (the sender's buffer lies in a heap of ours): the receiver copies it, once.
// Staged: in chunks through a staging area of the sender's, one filled while the other is drained.
// Memory of a device (medium.h): what is inline lies behind the staging area, which is the device's, and whoever copies
// waits for the device before it says that it has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/call/checked_operation.h"
#include "comm/shared_memory/group.h"

namespace reigen::comm::shared_memory {

// What this rank's messages with one other know of each other. Used by the driving thread, but for `sends` and `recvs`,
// which the calling thread counts.
struct Pair {
  std::uint64_t sends = 0;             // called
  std::uint64_t recvs = 0;             // called
  std::uint64_t next_send = 0;         // the one whose turn it is
  std::uint64_t next_recv = 0;         // the one whose turn it is
  std::uint64_t filled = 0;            // chunks of all staged sends
  std::uint64_t drained = 0;           // chunks of all staged recvs
  std::shared_ptr<void> staging = {};  // made at the first staged send; of a device also at the first short one
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
  // This rank's box for the other one, and the other's for this one.
  PairBox& own_box() const { return group_.box(group_.rank(), call_.root); }
  PairBox& other_box() const { return group_.box(call_.root, group_.rank()); }
  std::size_t slot() const { return number_ % kMessageSlots; }
  std::uint64_t chunk_count() const { return (call_.bytes() + kMessageChunkBytes - 1) / kMessageChunkBytes; }
  // Bytes of chunk `index` of this message: where in the message, how many, where in the staging area.
  struct Chunk {
    std::size_t begin;
    std::size_t bytes;
    std::size_t staged;
  };
  Chunk chunk(std::uint64_t index, std::uint64_t first) const;
  // Copies, or asks the device to: true when the copy is done, else to be called again with the same.
  bool copy(void* to, const void* from, std::size_t bytes);

  Group& group_;
  Pair& pair_;
  const Call call_;
  const std::uint64_t number_;
  const std::unique_ptr<Job> job_;  // null: this thread copies
  bool is_copying_ = false;         // the job has it
};

class Send : public Message {
 public:
  Send(Group& group, Pair& pair, const Call& call) : Message(group, pair, call, pair.sends) {
    pair.sends += 1;  // last: a call that is refused has no number
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
    pair.recvs += 1;  // as above
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
