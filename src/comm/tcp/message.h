// Send and recv over TCP. Each pair of ranks has a separate connection for messages, so messages and collectives may
// overtake each other. A message is a header, then the data. Messages from one rank to another arrive in the order in
// which they were sent.
//
// A send is done when the kernel has taken the whole message, so a short send does not wait for its recv. A recv reads
// the data only after it has compared the header with its own call.
#pragma once

#include <cstdint>
#include <string>

#include "comm/call/checked_operation.h"
#include "comm/tcp/group.h"

namespace reigen::comm::tcp {

inline constexpr std::uint32_t kMessageMark = 0x52474d31;

struct MessageHeader {
  std::uint32_t mark = kMessageMark;
  DataType type = DataType::kUint8;
  std::uint64_t count = 0;
  Tag tag = {};
};
static_assert(sizeof(MessageHeader) == 64, "the same on every machine");

// State that the messages between this rank and one other rank share. Only the driver thread uses it, except for
// `sends` and `recvs`, which the calling thread counts.
struct Pair {
  std::uint64_t sends = 0;      // number of sends called so far
  std::uint64_t recvs = 0;      // number of recvs called so far
  std::uint64_t next_send = 0;  // number of the send whose turn it is
  std::uint64_t next_recv = 0;  // number of the recv whose turn it is
};

class Message : public CheckedOperation {
 public:
  bool try_post() override { return true; }
  Step advance() final;

 protected:
  Message(Group& group, Pair& pair, const Call& call, std::uint64_t number)
      : group_(group), pair_(pair), call_(call), number_(number) {}

  std::string describe() const;
  Stream& stream() const { return group_.messages(call_.root); }
  void check(bool nothing_comes, std::chrono::nanoseconds waited) const;
  virtual Step move() = 0;  // called only when it is the turn of this message

  Group& group_;
  Pair& pair_;
  const Call& call_;
  const std::uint64_t number_;
  MessageHeader header_;
};

class Send : public Message {
 public:
  Send(Group& group, Pair& pair, const Call& call);
  bool is_its_turn() const override { return pair_.next_send == number_; }
  // A rank that has left reads nothing more, so a send to it can never complete.
  void check_peers(std::chrono::nanoseconds waited) const override { check(true, waited); }

 private:
  Step move() override;

  bool queued_ = false;
};

class Recv : public Message {
 public:
  Recv(Group& group, Pair& pair, const Call& call) : Message(group, pair, call, pair.recvs++) {}
  bool is_its_turn() const override { return pair_.next_recv == number_; }
  // The farewell or the end of the sender shows on the control connection, and may overtake the sender's last message.
  // So the recv fails only when nothing more can arrive on the message connection.
  void check_peers(std::chrono::nanoseconds waited) const override { check(stream().silent(), waited); }

 private:
  enum class Phase { kFirst, kHeader, kData };
  Step move() override;
  void compare() const;

  Phase phase_ = Phase::kFirst;
};

}  // namespace reigen::comm::tcp
