// In every step each rank sends one message, of a fixed size, to each of its peers. Messages may arrive late: a rank
// takes the messages that have arrived, and waits only for those that are too old.
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
  // Collective: it makes a group of its own, so that its messages are not mixed up with messages of others.
  LateExchange(const Communicator& world, const std::vector<int>& peers, std::size_t bytes);

  // Memory for the next message; its contents are undefined.
  void* message();
  void send();
  std::int64_t sent() const { return sent_; }

  // Calls take(peer's index, its message n, our message n) for each message that has arrived. The messages of one peer
  // come in the order of n. Waits for the messages with numbers up to `until`, counted from 1.
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
  std::int64_t oldest_ = 1;        // number of messages_.front()
  std::deque<Outgoing> messages_;  // message n is kept until it is sent and the peers' message n is taken; back(): next
  std::vector<std::shared_ptr<void>> spare_;
};

}  // namespace reigen::parallel
