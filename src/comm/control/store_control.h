// The store as control channel, for engines that move data but cannot say who called what, who lives and why a group
// ended (MPI, NCCL).
//
// It costs nothing while calls complete: a thread (store_thread.h) asks the store twice a second whether anybody wants
// to know something. A rank that waits calls for attention; then every rank writes its state (a heartbeat and its last
// calls), and the one that waits compares them. The first error found is written once and is what every rank throws.
//
// Thread rule: every function may be called from any thread; none but join() and agree() waits for the store, which may
// be served by the very process that was stopped.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/backend.h"
#include "comm/forming/forming.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::control {

struct Channel;  // what the thread and the callers share
class StoreThread;

// Who looks whether the ranks that a call waits for live.
enum class Watch {
  kHere,
  kInTheEngine,  // which knows what the call still needs of whom: a rank that has done its part may end
};

class StoreControl {
 public:
  // `parent`: of a group off which this one is split: both share its thread.
  explicit StoreControl(const GroupOptions& options, Watch watch = Watch::kHere, const StoreControl* parent = nullptr);
  ~StoreControl();
  StoreControl(const StoreControl&) = delete;  // a channel belongs to it
  StoreControl& operator=(const StoreControl&) = delete;

  // Blocks until every rank has announced itself and gives what they said. Throws Timeout naming who did not.
  // `look`: called now and then meanwhile; what it throws ends it.
  std::vector<std::string> join(const std::string& announcement, const std::function<void()>& look = {});
  // All go on, or nobody does: throws BackendError with the first failure that a rank has (empty: none).
  void agree(const std::string& failure);
  // From here on the group lives: the thread talks for it.
  void start();

  // Every call, in order.
  void called(const Call& call, std::uint64_t sequence);
  // While call `sequence` waits. Throws PeerLost, Timeout, CollectiveMismatch, or what another rank aborted with.
  void check(const Call& call, std::uint64_t sequence, std::chrono::nanoseconds waited);
  // While a message to or from `rank` waits; `what` describes it.
  void check_message(int rank, const std::string& what, std::chrono::nanoseconds waited);
  // Throws what another rank ended the group with, if this rank has heard of it: within half a second, waiting or not.
  void throw_if_ended();
  // The engine saw that the calls differ: check() will name them soon.
  void look_for_mismatch();

  void leave();
  void publish_abort(const AbortCause& cause);

  // "rank 2 (host a, pid 17)".
  std::string describe_peer(int rank) const;
  const std::string& group() const;
  // Beside the other ranks of this host.
  base::CoreShare core_share() const;

 private:
  const std::shared_ptr<StoreThread> thread_;
  const std::shared_ptr<Channel> channel_;
  const Watch watch_;
  std::optional<Forming> forming_;
  bool started_ = false;
};

}  // namespace reigen::comm::control
