// In every step each rank sends one message, of a fixed size, to each of its peers. Messages may arrive late. A rank
// takes the messages that have arrived, and waits only for messages up to a number that the caller chooses.
//
// No rank starts to receive message n before it has sent its own message n. So when all ranks have sent the same
// number of messages and have taken all of them, nothing is in flight.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::parallel {

class LateExchange {
 public:
  // Splits a group of its own from `world`, so that its messages are not mixed up with other messages of these ranks.
  // Collective.
  LateExchange(const Communicator& world, const std::vector<int>& peers, std::size_t bytes);

  // Returns memory for the next message, which send() sends to all peers. Its contents are undefined.
  void* message();
  void send();
  std::int64_t sent() const { return sent_; }

  // Calls `take` for each message that has arrived, with the peer's index, the peer's message n and this rank's message
  // n. Messages are numbered from 1, and the messages of one peer come in the order of n. Waits for the messages with
  // numbers up to `until`.
  using Take = std::function<void(std::size_t peer, const std::byte* theirs, const std::byte* ours)>;
  void receive(std::int64_t until, const Take& take);

 private:
  struct Outgoing {
    std::shared_ptr<void> memory;
    std::vector<Work> sends;
  };
  struct Peer {
    int rank = 0;
    std::shared_ptr<void> memory;
    Work arrival = {};
    bool asked = false;
    std::int64_t taken = 0;
  };

  void ask(Peer& peer);
  void drop_old();

  Communicator world_;
  std::size_t bytes_;
  std::vector<Peer> peers_;
  std::int64_t sent_ = 0;
  std::int64_t oldest_ = 1;  // number of messages_.front()
  // Message n remains here until it is sent and message n of every peer is taken. After message() was called, the last
  // entry is the next message.
  std::deque<Outgoing> messages_;
  std::vector<std::shared_ptr<void>> spare_;
};

}  // namespace reigen::parallel
