// The store as control channel, for backends that move data but cannot say which rank called what, which ranks are
// alive and why a group ended (MPI, NCCL).
//
// The control channel costs next to nothing while calls complete. A thread (store_thread.h) reads a counter in the
// store twice a second. A rank that waits adds 1 to this counter; comments say that it calls for attention. Every rank
// then writes its state (a heartbeat and its last calls), and the rank that waits compares the states. The first error
// that a rank finds is written to the store, and every rank throws that error.
//
// Thread rule: every function may be called from any thread. Only join(), agree() and together() wait for the store.
// The other functions must not wait for it, because the process that serves the store may be stopped.
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

struct Channel;  // the data that the StoreThread and the callers share
class StoreThread;

// Who checks that the ranks for which a call waits are alive.
enum class Watch {
  kHere,         // the StoreControl
  kInTheEngine,  // the backend, because it knows which ranks have done their part of a call and may end
};

class StoreControl {
 public:
  // `parent`: the StoreControl of the group from which this group was split, or null. If it is set, both use the thread
  // of `parent`.
  explicit StoreControl(const GroupOptions& options, Watch watch = Watch::kHere, const StoreControl* parent = nullptr);
  ~StoreControl();
  StoreControl(const StoreControl&) = delete;  // its destructor ends its channel
  StoreControl& operator=(const StoreControl&) = delete;

  // Blocks until every rank has announced itself; returns result[q] = the announcement of rank q. Throws Timeout
  // naming the missing ranks. `look` is called now and then meanwhile; an error that it throws ends the wait.
  std::vector<std::string> join(const std::string& announcement, const std::function<void()>& look = {});
  // Either all ranks go on or none does. `failure` describes what failed on this rank; it is empty if nothing failed.
  // If anything failed on any rank, every rank throws BackendError with the first failure.
  void agree(const std::string& failure);
  // Runs body() on every rank. If it throws on one rank, every rank throws this error. If a rank dies meanwhile, the
  // ranks of its machine see it, and every rank throws PeerLost. For this a body that waits calls `look` again and
  // again. A body must end within join_timeout.
  void together(const std::function<void(const std::function<void()>& look)>& body);
  // Called when the group has formed. From now on the thread talks to the store for the group.
  void start();

  // Records a call of this rank. Called for every call, in order.
  void called(const Call& call, std::uint64_t sequence);
  // Called again and again while call `sequence` waits. Throws PeerLost, Timeout, CollectiveMismatch, or the error
  // with which another rank ended the group.
  void check(const Call& call, std::uint64_t sequence, std::chrono::nanoseconds waited);
  // As check(), while a send to `rank` or a recv from `rank` waits. `what` describes it.
  void check_message(int rank, const std::string& what, std::chrono::nanoseconds waited);
  // Throws the error with which another rank ended the group, if this rank knows it. The thread reads such an error
  // from the store within half a second, whether this rank waits or not.
  void throw_if_ended();
  // Called when the backend has seen that the calls differ. check() then soon throws an error that names two calls that
  // differ.
  void look_for_mismatch();

  void leave();
  void publish_abort(const AbortCause& cause);

  // "rank 2 (host a, pid 17)".
  std::string describe_peer(int rank) const;
  const std::string& group() const;
  // This rank's share of the processors of its host. All ranks of the group on the host divide the processors.
  base::CoreShare core_share() const;

 private:
  // Throws PeerLost if the process of one of these ranks has died before the group was complete.
  void require_alive(const std::vector<int>& ranks) const;

  const std::shared_ptr<StoreThread> thread_;
  const std::shared_ptr<Channel> channel_;
  const Watch watch_;
  std::optional<Forming> forming_;
  bool started_ = false;
};

}  // namespace reigen::comm::control
