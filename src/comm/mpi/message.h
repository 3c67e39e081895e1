// Send and recv over MPI. Messages have a communicator of their own, so the order of a message and a collective need
// not be the same on all ranks.
//
// A short message is sent together with its header, and its send completes at once. MPI does not promise that MPI_Isend
// completes at once, so MPI gets a copy of the data. The data of a longer message is sent after its header, directly
// into the memory of the recv. The send completes when MPI has finished it. A recv compares the header with its own
// call before it takes the data. Memory that is not from allocate() is copied to the arena and back, as for
// collectives.
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

// The state that all messages of a group share. Used by the driver thread only.
struct Messages {
  Group& group;
  const GroupOptions& options;
  MPI_Comm communicator = MPI_COMM_NULL;
  int moving = 0;  // longer messages whose data is in flight
  // Short messages that were given to MPI and that MPI may not have sent yet.
  struct Loose {
    MPI_Request request;
    std::shared_ptr<void> memory;
  };
  std::vector<Loose> loose = {};

  void forget_sent();
  // Waits until MPI has sent all short messages, for two seconds at most.
  void flush();
};

// This rank's messages to and from one other rank. The calling thread uses `sends` and `recvs`; the driver thread uses
// the rest.
struct Pair {
  std::uint64_t sends = 0;      // number of sends called so far
  std::uint64_t recvs = 0;      // number of recvs called so far
  std::uint64_t next_recv = 0;  // the number of the recv whose turn it is
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
  const Call& call_;
  const std::uint64_t number_;
  std::vector<MPI_Request> requests_;
  std::shared_ptr<void> head_;    // the header, followed by the data of a short message
  std::shared_ptr<void> staged_;  // staging buffer of a longer message whose memory is not from allocate()
};

// Sends are given to MPI in the order of the calls, because the engine advances them one after the other.
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
