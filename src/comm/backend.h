// The interface that every communication backend implements. It is private: users call Communicator.
//
// The operations of a backend are state machines that never block. The Engine (engine.h) advances them in the order of
// the calls. Only one thread at a time drives a group, which means that it advances the group's operations. That thread
// is called the driver thread. Sleeping is a function of the Backend and not of its operations, so that one waiting
// routine in the Engine serves all operations.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/machine/core_share.h"
#include "comm/call/call.h"
#include "reigen/base/error.h"
#include "reigen/device/device.h"

namespace reigen::comm {

struct GroupOptions;

// The state of an operation after advance().
enum class Step {
  kBlocked,   // waits for other ranks
  kMoved,     // made progress: advance() should be called again
  kPassedOn,  // not complete, but the next operation may advance: it need not wait for this operation on this rank
  kDone,      // complete
};

class Operation {
 public:
  virtual ~Operation() = default;
  // Makes the call visible to the other ranks. Returns false while the backend has no room for another call.
  virtual bool try_post() = 0;
  // Returns false while an earlier operation of this rank must complete first. Meanwhile this operation does not wait
  // for other ranks, so the Engine does not check the other ranks for it.
  virtual bool is_its_turn() const { return true; }
  // Advances as far as possible without waiting. Throws CollectiveMismatch and similar errors.
  virtual Step advance() = 0;
  // After this, work that is newly enqueued on the stream waits for the operation's result. Returns false, and does
  // nothing, if the operation has not begun on its device yet. Always returns false for an operation on the host's
  // memory: no stream can wait for it.
  virtual bool precede([[maybe_unused]] const Stream& stream) { return false; }
};

// Why a group ended. The cause is sent to every rank, so that all ranks throw the same error.
struct AbortCause {
  enum class Kind : std::uint32_t { kAborted, kPeerLost, kTimeout, kMismatch, kLeft };
  Kind kind = Kind::kAborted;
  int rank = -1;  // the rank that caused the end; -1 if it is not known
  std::string text = {};
};

// A rank left the group while operations of the group were pending. This ends the group. The other groups that were
// split off the same first group end only if some rank waits in this group.
class LeftPending final : public Aborted {
 public:
  using Aborted::Aborted;
};

[[noreturn]] void throw_cause(const AbortCause& cause);
AbortCause cause_of(std::exception_ptr error);

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const std::string& name() const = 0;
  // The name of the algorithm that ran the last collective, as rules name it (algorithm_choice.h). If a library (MPI,
  // NCCL) chooses the algorithms, the result is the name of the backend. Call it after a collective has completed; any
  // thread may call it.
  virtual std::string last_algorithm() const { return name(); }

  // Marks the work that is on the stream `after` now, for Call::before. Returns null if the backend does not need the
  // mark. Runs on the thread that makes the call, before this thread waits for a lock of the Engine. The wait for the
  // lock may be long, and other threads may meanwhile enqueue more work on the stream. The call must not wait for that
  // work.
  virtual std::shared_ptr<Before> mark([[maybe_unused]] const Stream& after) { return nullptr; }
  // Throws InvalidArgument or BackendError for a call that this backend does not offer, before anything has been done
  // for the call.
  virtual void require_offered([[maybe_unused]] const Call& call) const {}
  // Makes the operation of a call. `sequence`: the number of the collective in the group; 0 for a send or recv. The
  // operation keeps a reference to `call`, so `call` must outlive it. For a call of a few bytes, a copy of `call` would
  // take noticeable time.
  virtual std::unique_ptr<Operation> start(const Call& call, std::uint64_t sequence) = 0;
  std::unique_ptr<Operation> start(Call&& call, std::uint64_t sequence) = delete;

  // This rank's share of the processors of its machine. All ranks of the group on that machine divide the processors.
  virtual base::CoreShare core_share() const = 0;
  // True if waiting threads may spin even without a processor of their own.
  virtual bool always_spins() const { return false; }
  // Announces that this thread will sleep, and then calls `ready` once more, so that the thread misses no wake-up. If
  // `ready` returns false, sleeps until another rank or wake() wakes this thread, or until `limit` has passed.
  virtual void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit) = 0;
  // Wakes this rank's sleeping threads.
  virtual void wake() = 0;

  // Checks the ranks that `operation` waits for. Called every few milliseconds during a wait. `waited`: how long the
  // wait has lasted so far. Throws PeerLost, Timeout, or the error with which another rank ended the group.
  virtual void check_peers(const Operation& operation, std::chrono::nanoseconds waited) = 0;

  // Throws PeerLost if one of `ranks` is known to have died. Called while a new group of `ranks` forms; any thread may
  // call it.
  virtual void look_for(const std::vector<int>& /*ranks*/) {}
  // Throws the error with which another rank ended the group, if this rank knows it. Called by the driver thread.
  virtual void throw_if_ended() {}

  // Tells the other ranks that this rank is alive. Called by the progress thread (context.h).
  virtual void heartbeat() = 0;
  // Tells the other ranks that this rank left the group in good order. Called once, when no operation is in flight.
  virtual void leave() = 0;
  // Tells all ranks that the group has ended. From then on, a freed block of allocate() is never handed out again,
  // because other ranks may still write to it.
  virtual void publish_abort(const AbortCause& cause) = 0;

  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  // The device in whose memory the buffers of this backend's calls lie. allocate() returns memory of this device.
  virtual Device device() const { return Device::cpu(); }
  // Returns the block of allocate() in which `pointer` lies, and keeps it alive as long as the result exists. Returns
  // null if `pointer` lies in other memory.
  virtual std::shared_ptr<void> hold([[maybe_unused]] const void* pointer) { return nullptr; }

  // As Communicator::shares_memory().
  virtual bool shares_memory() const { return false; }

  // As Communicator::network_bytes(). Any thread may call it.
  virtual std::optional<std::uint64_t> network_bytes() const { return std::nullopt; }

  // Memory that all ranks of the group map. One rank creates it and sends a short text (`word`) to the other ranks. The
  // other ranks open the memory with that text. create_common() and open_common() throw BackendError if the backend has
  // no such memory.
  struct Common {
    std::shared_ptr<void> memory;
    std::string word;  // at most kCommonWordMax characters
  };
  static constexpr std::size_t kCommonWordMax = 120;
  virtual Common create_common(std::size_t bytes);
  virtual std::shared_ptr<void> open_common(const std::string& word);

  // Makes a backend for a new group of some of this group's ranks. The calls of the new group may use memory from
  // allocate() of this backend at the same cost. The ranks of the new group find each other through the store
  // options.meeting. Blocks until all of these ranks are there. If make_child() throws PeerLost, the rank in the error
  // is a number in the new group. members[i] is the number in this group of the rank that has the number i in the new
  // group.
  virtual std::unique_ptr<Backend> make_child(const GroupOptions& options, const std::vector<int>& members) = 0;
};

}  // namespace reigen::comm
