// Send and recv over MPI, on a communicator of their own: they pass by collectives in any order.
//
// A short message travels with its header, and its send is done at once: MPI itself promises nothing of that kind, so
// it gets a copy. A longer one follows its header, to where the recv wants it; the send waits for MPI to be done with
// it. A recv takes the data once the header has been compared with the own call. Memory that is not from allocate() is
// copied to the arena and back, as for collectives.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/call/checked_operation.h"
#include "comm/mpi/group.h"
#include "reigen/comm/options.h"

namespace reigen::comm::mpi {

inline constexpr std::size_t kShortMessage = 1024;  // bytes of data

// What the messages of a group share. Used by the driving thread only.
struct Messages {
  Group& group;
  const GroupOptions& options;
  MPI_Comm communicator = MPI_COMM_NULL;
  int moving = 0;  // messages whose data is under way
  // Short ones that MPI has taken and may not have sent yet.
  struct Loose {
    MPI_Request request;
    std::shared_ptr<void> memory;
  };
  std::vector<Loose> loose = {};

  void forget_sent();
  // Waits a moment until MPI has sent all of them.
  void flush();
};

// This rank's messages with one other. Used by the driving thread, but for `sends` and `recvs`, which the calling
// thread counts.
struct Pair {
  std::uint64_t sends = 0;      // called
  std::uint64_t recvs = 0;      // called
  std::uint64_t next_recv = 0;  // the one whose turn it is
};

class Message : public CheckedOperation {
 public:
  ~Message() override;
  bool try_post() override { return true; }
  void check_peers(std::chrono::nanoseconds waited) const override;

 protected:
  Message(Messages& messages, Pair& pair, const Call& call, std::uint64_t number)
      : messages_(messages), pair_(pair), call_(call), number_(number) {}

  Arena& arena() const { return *messages_.group.arena; }
  bool is_short() const { return call_.bytes() <= kShortMessage; }

  Messages& messages_;
  Pair& pair_;
  const Call call_;
  const std::uint64_t number_;
  std::vector<MPI_Request> requests_;
  std::shared_ptr<void> head_;    // the header, and the data of a short message
  std::shared_ptr<void> staged_;  // the data of a longer one in foreign memory
};

// Goes to MPI in the order of the calls: the engine asks one after the other.
class Send : public Message {
 public:
  Send(Messages& messages, Pair& pair, const Call& call) : Message(messages, pair, call, pair.sends++) {}
  Step advance() override;

 private:
  void begin();

  bool begun_ = false;
};

class Recv : public Message {
 public:
  Recv(Messages& messages, Pair& pair, const Call& call) : Message(messages, pair, call, pair.recvs++) {}
  Step advance() override;
  bool is_its_turn() const override { return pair_.next_recv == number_; }

 private:
  enum class Phase { kFirst, kHead, kData };
  void expect_head();
  void compare() const;
  void expect_data();
  Step finish();

  Phase phase_ = Phase::kFirst;
};

}  // namespace reigen::comm::mpi
