// The conversation of one rank with the store for one group, held by the StoreThread: see store_control.h.
// Thread rule: the members under "guarded" are, by `mutex`.
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

  // The thread calls these two: due() says when it talks next, talk() talks once.
  Clock::time_point due();
  void talk();
  // After this the thread talks once more, then forgets the channel.
  void stop();
  bool is_stopping();
  // Wakes the thread. The caller holds `mutex`.
  void ring() const { bell(); }

  const GroupOptions options;
  const std::shared_ptr<store::Store> store;  // of this group alone
  std::vector<PeerProcess> peers;

  const std::function<void()> bell;

  std::mutex mutex;
  // Guarded, for the thread:
  bool stopping = false;
  RankState own;
  Clock::time_point watch_until;  // this rank waits
  bool urgent = false;            // the calls differ
  Clock::time_point urgent_since;
  std::optional<AbortCause> verdict;  // to be written, unless another rank was first
  Clock::time_point verdict_since;
  // Guarded, from the thread:
  std::vector<RankState> states;
  std::vector<Clock::time_point> beat_seen;
  std::vector<Clock::time_point> left_seen;  // of ranks that left: since when it is known here
  std::vector<bool> heard;                   // since this rank began to wait
  std::optional<AbortCause> failure;         // of the group
  Clock::time_point answered;                // when the store did last
  std::string store_lost;
  std::uint64_t reads = 0;                                 // of all states, so far
  std::vector<std::optional<std::uint64_t>> died_at = {};  // reads when a rank's death was first seen
  bool reported = false;

 private:
  std::chrono::nanoseconds interval(bool watching, bool hurry, Clock::time_point now) const;
  void converse();
  void write_verdict();
  void look_for_attention(bool watching, Clock::time_point now);
  void write_state();
  void read_states();

  // The thread's own:
  Clock::time_point talked_;
  bool watched_ = false;  // when it last talked
  std::string attention_;
  Clock::time_point asked_;
  Clock::time_point answer_until_;
  Clock::time_point mismatch_since_;
  bool told_left_ = false;
};

}  // namespace reigen::comm::control
