// Messages of one size, one a step from every rank to each of its peers, that need not come in time: a rank takes those
// that are there and waits for those that are too old.
//
// No rank asks for a message before it has sent its own of that number, so when all ranks have sent the same number and
// taken them all, nothing is under way.
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
  // Collective: it makes a group of its own, whose messages are no other's.
  LateExchange(const Communicator& world, const std::vector<int>& peers, std::size_t bytes);

  // Memory for the next message: what it holds is undefined.
  void* message();
  void send();
  std::int64_t sent() const { return sent_; }

  // take(peer's index, its message n, our message n) for every peer's messages that are there, in the order of n for
  // each; waits for those up to number `until`, counted from 1.
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
  std::deque<Outgoing> messages_;  // that a peer has not received, or whose twin has not come; and the one to be sent
  std::vector<std::shared_ptr<void>> spare_;
};

}  // namespace reigen::parallel
