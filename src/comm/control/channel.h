// What one rank writes to the store for one group, and what it has read from the store. Only the StoreThread
// (store_thread.h) accesses the store.
// Thread rule: `mutex` guards the members under "Guarded". Only the StoreThread, here called the thread, uses the
// private members.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/rank_state.h"
#include "comm/forming/peer_process.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::control {

using Clock = std::chrono::steady_clock;

struct Channel {
  Channel(const GroupOptions& group, std::function<void()> bell);

  // For the thread. due() returns the time at which the thread must talk to the store next. talk() writes to the store
  // and reads from it once.
  Clock::time_point due();
  void talk();
  // After stop() the thread talks to the store once more and then forgets the channel.
  void stop();
  bool is_stopping();
  // Wakes the thread. The caller holds `mutex`.
  void ring() const { bell(); }

  const GroupOptions options;
  const std::shared_ptr<store::Store> store;  // the part of the store that belongs to this group
  std::vector<PeerProcess> peers;

  const std::function<void()> bell;

  std::mutex mutex;
  // Guarded, instructions to the thread:
  bool stopping = false;
  RankState own;
  Clock::time_point watch_until;  // until this time the thread watches the other ranks, because this rank waits
  bool urgent = false;            // the ranks made different calls, so the thread must talk often
  Clock::time_point urgent_since;
  std::optional<AbortCause> verdict;  // the error that this rank found; the thread writes it to the store
  Clock::time_point verdict_since;
  // Guarded, read from the store:
  std::vector<RankState> states;
  std::vector<Clock::time_point> beat_seen;
  std::vector<Clock::time_point> left_seen;  // when this rank learned that rank q had left
  std::vector<bool> heard;                   // heard[q]: rank q has given a sign of life since this rank began to wait
  std::optional<AbortCause> failure;         // the error that ended the group
  Clock::time_point answered;                // when the store last answered
  std::string store_lost;
  std::uint64_t reads = 0;                                 // how often all states have been read
  std::vector<std::optional<std::uint64_t>> died_at = {};  // the value of `reads` when a rank's death was first seen
  bool reported = false;

 private:
  std::chrono::nanoseconds interval(bool watching, bool hurry, Clock::time_point now) const;
  void converse();
  void write_verdict();
  void look_for_attention(bool watching, Clock::time_point now);
  void write_state();
  void read_states();

  // Only for the thread:
  Clock::time_point talked_;
  bool watched_ = false;  // this rank waited when the thread last talked to the store
  std::string attention_;
  Clock::time_point asked_;
  Clock::time_point answer_until_;
  Clock::time_point mismatch_since_;
  bool told_left_ = false;
};

}  // namespace reigen::comm::control
