// What a communication engine must offer. Private: users see Communicator.
//
// An engine's operations are state machines that never block; the Engine (engine.h) moves them on from whichever thread
// drives, one thread at a time, in the order of the calls. Sleeping is separate, so that one waiting routine serves
// all.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "base/machine/core_share.h"
#include "comm/call/call.h"
#include "reigen/base/error.h"
#include "reigen/device/device.h"

namespace reigen::comm {

struct GroupOptions;

// Where an operation stands after advance().
enum class Step {
  kBlocked,   // waits for other ranks
  kMoved,     // did something, ask again
  kPassedOn,  // not complete, but the next operation may move on: this rank's part is done, or the two are apart
  kDone,      // complete
};

class Operation {
 public:
  virtual ~Operation() = default;
  // Makes the call visible to the other ranks; false while there is no room for it.
  virtual bool try_post() = 0;
  // Whether nothing of its own rank stands before it: only then does it wait for the others.
  virtual bool is_its_turn() const { return true; }
  // Moves on as far as it can without waiting. Throws CollectiveMismatch and the like.
  virtual Step advance() = 0;
  // What comes on the stream from now on waits for the result. False where the operation is not on its device yet, and
  // where it works on the host's memory: there only its end tells that the result is there.
  virtual bool precede([[maybe_unused]] const Stream& stream) { return false; }
};

// Why a group ended; travels to every rank so that all throw the same.
struct AbortCause {
  enum class Kind : std::uint32_t { kAborted, kPeerLost, kTimeout, kMismatch, kLeft };
  Kind kind = Kind::kAborted;
  int rank = -1;  // the culprit, when one is known
  std::string text = {};
};

// A rank left the group while its operations were pending. It ends the group, and the others only where a rank waits in
// this one.
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
  // What the last collective took, by the name under which rules choose it; a backend that leaves the choice to a
  // library says its own name. After a call that has completed; any thread.
  virtual std::string last_algorithm() const { return name(); }

  // Marks what the stream has to do until now, for Call::before; null: the backend has no need of it. On the thread
  // that calls, with no lock of the engine: the driver may keep the caller waiting.
  virtual std::shared_ptr<Before> mark([[maybe_unused]] const Stream& after) { return nullptr; }
  // Throws InvalidArgument or BackendError for a call that this backend does not offer; nothing has happened then.
  virtual void require_offered([[maybe_unused]] const Call& call) const {}
  virtual std::unique_ptr<Operation> start(const Call& call, std::uint64_t sequence) = 0;

  // Of this machine's processors, beside the group's other ranks on it.
  virtual base::CoreShare core_share() const = 0;
  // True when waiting threads may spin though they have no processor of their own.
  virtual bool always_spins() const { return false; }
  // Calls `ready` once more after announcing the sleep, then sleeps until another rank or wake() rings, or `limit`
  // passes.
  virtual void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit) = 0;
  // Wakes this rank's sleeping threads.
  virtual void wake() = 0;

  // Looks after the ranks that `operation` waits for. Called every few milliseconds while waiting; `waited` is for how
  // long. Throws PeerLost, Timeout or what another rank aborted with.
  virtual void check_peers(const Operation& operation, std::chrono::nanoseconds waited) = 0;

  // Throws PeerLost when one of these ranks is known to have died. For a group of them that forms; any thread.
  virtual void look_for(const std::vector<int>& /*ranks*/) {}
  // Throws what another rank ended the group with, if that is known here. Called by the driving thread.
  virtual void throw_if_ended() {}

  // Sign of life, from the progress thread.
  virtual void heartbeat() = 0;
  // Tells the others that this rank is gone in good order. Called once, when nothing is under way any more.
  virtual void leave() = 0;
  // Tells all ranks that the group has ended, and never hands out this rank's memory again.
  virtual void publish_abort(const AbortCause& cause) = 0;

  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  // The device whose memory this backend carries and allocates.
  virtual Device device() const { return Device::cpu(); }
  // The block of allocate() in which `pointer` lies, kept as long as the result; null for other memory.
  virtual std::shared_ptr<void> hold([[maybe_unused]] const void* pointer) { return nullptr; }

  // As Communicator::shares_memory().
  virtual bool shares_memory() const { return false; }

  // Memory that all ranks of the group have in common: one of them creates it and gives the others a word for it, with
  // which they open it. Throws BackendError where there is none.
  struct Common {
    std::shared_ptr<void> memory;
    std::string word;  // at most kCommonWordMax characters
  };
  static constexpr std::size_t kCommonWordMax = 120;
  virtual Common create_common(std::size_t bytes);
  virtual std::shared_ptr<void> open_common(const std::string& word);

  // A backend for some of this group's ranks, with the same memory, which meet in options.meeting. Blocks until they
  // are all there; a PeerLost is by its number in the new one. `members`: rank in this group of every rank of the new
  // one.
  virtual std::unique_ptr<Backend> make_child(const GroupOptions& options, const std::vector<int>& members) = 0;
};

}  // namespace reigen::comm
