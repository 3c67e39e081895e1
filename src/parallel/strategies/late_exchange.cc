#include "parallel/strategies/late_exchange.h"

#include <algorithm>
#include <utility>

namespace reigen::parallel {

LateExchange::LateExchange(const Communicator& world, const std::vector<int>& peers, std::size_t bytes)
    : world_(*world.split(0)), bytes_(bytes) {
  for (const int rank : peers) peers_.push_back({.rank = rank, .memory = world_.allocate(bytes)});
}

void* LateExchange::message() {
  if (static_cast<std::int64_t>(messages_.size()) == sent_ - oldest_ + 1) {
    std::shared_ptr<void> memory;
    if (spare_.empty()) {
      memory = world_.allocate(bytes_);
    } else {
      memory = std::move(spare_.back());
      spare_.pop_back();
    }
    messages_.push_back({.memory = std::move(memory), .sends = {}});
  }
  return messages_.back().memory.get();
}

void LateExchange::send() {
  message();
  ++sent_;
  Outgoing& outgoing = messages_.back();
  for (const Peer& peer : peers_) {
    outgoing.sends.push_back(
        world_.start_send(outgoing.memory.get(), bytes_, DataType::kUint8, peer.rank, {.tag = "late exchange"}));
  }
}

void LateExchange::ask(Peer& peer) {
  if (peer.asked || peer.taken == sent_) return;
  peer.arrival = world_.start_recv(peer.memory.get(), bytes_, DataType::kUint8, peer.rank, {.tag = "late exchange"});
  peer.asked = true;
}

void LateExchange::receive(std::int64_t until, const Take& take) {
  for (Peer& peer : peers_) ask(peer);
  world_.poll();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    while (peer.asked && (peer.taken < until || peer.arrival.is_completed())) {
      peer.arrival.wait();
      const Outgoing& ours = messages_[static_cast<std::size_t>(peer.taken + 1 - oldest_)];
      take(i, static_cast<const std::byte*>(peer.memory.get()), static_cast<const std::byte*>(ours.memory.get()));
      ++peer.taken;
      peer.asked = false;
      ask(peer);
    }
  }
  drop_old();
}

void LateExchange::drop_old() {
  std::int64_t taken = sent_;
  for (const Peer& peer : peers_) taken = std::min(taken, peer.taken);
  while (oldest_ <= taken) {
    Outgoing& outgoing = messages_.front();
    for (const Work& send : outgoing.sends) {
      if (!send.is_completed()) return;
    }
    for (const Work& send : outgoing.sends) send.wait();  // throws the error of a send that failed
    spare_.push_back(std::move(outgoing.memory));
    messages_.pop_front();
    ++oldest_;
  }
}

}  // namespace reigen::parallel
