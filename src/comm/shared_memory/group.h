// How the ranks of a group on one machine find each other, notice dead ranks, sleep, and wake each other.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/machine/cores.h"
#include "comm/backend.h"
#include "comm/call/algorithm_choice.h"
#include "comm/call/signature.h"
#include "comm/shared_memory/page.h"
#include "reigen/base/unique_fd.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::shared_memory {

// A condition: on every rank, this counter of the rank's page is at least `value`.
struct Need {
  std::atomic<std::uint64_t> RankPage::*counter = nullptr;
  std::uint64_t value = 0;

  bool met_by(const RankPage& page) const { return (page.*counter).load() >= value; }
};

// The counter values from which a rank counts as done with a call. If a rank aborts after it has reached them, its
// abort concerns a later call. With the default values no rank counts as done.
struct Through {
  std::uint64_t verified = UINT64_MAX;
  std::uint64_t finished = 0;

  bool holds_for(const RankPage& page) const {
    return page.verified.load() >= verified && page.finished.load() >= finished;
  }
};

class Group {
 public:
  // Blocks until all ranks have mapped each other's pages. Throws Timeout naming the missing ranks, and BackendError
  // when ranks cannot reach each other's memory. `medium`: the device whose memory the heap allocates; null for host
  // memory. `whole`: the group from which this group is split; null if it is not split from another.
  Group(const GroupOptions& options, std::shared_ptr<Heap> heap, std::shared_ptr<Medium> medium,
        const Group* whole = nullptr);
  // A second lane of `first`: a Group with the same ranks and memory, whose calls may be in flight at the same time as
  // those of `first`. An error message about a rank names that rank's last call, counted over both lanes. Only one
  // thread at a time advances the calls of both lanes.
  Group(const GroupOptions& options, Group& first);
  ~Group();
  Group(const Group&) = delete;  // other ranks map its page
  Group& operator=(const Group&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const GroupOptions& options() const { return options_; }
  const AlgorithmChoice& algorithms() const { return algorithms_; }
  RankPage& page() { return *peers_[static_cast<std::size_t>(rank())].page; }
  RankPage& page_of(int rank) { return *peers_[static_cast<std::size_t>(rank)].page; }
  // The box of rank `owner` for messages to and from rank `other`. Only `owner` writes to it.
  PairBox& box(int owner, int other) {
    auto* const behind = reinterpret_cast<std::byte*>(&page_of(owner)) + sizeof(RankPage);
    return reinterpret_cast<PairBox*>(behind)[other];
  }
  // The address in this process of a location that `rank` has announced. Throws IoError when that rank is gone. Throws
  // InvalidArgument when the location is in memory of allocate_shared() that this rank has released already.
  std::byte* resolve(int rank, const Location& location);
  Heap& heap() { return *heap_; }
  // Null if the group's memory is host memory.
  const std::shared_ptr<Medium>& medium() const { return medium_; }
  // Whether a stream may be made to wait for a call of the group. This is not so for the default stream of a device if
  // several ranks are threads of this process, because they share that stream. If one rank made the stream wait for a
  // call, work that another of these ranks enqueues later would wait too. But the call may need exactly that work to
  // complete.
  bool lets_follow(const Stream& stream) const { return stream.handle != nullptr || !shares_process_; }
  // The address in this process of a rank's staging buffer.
  std::byte* staging_of(int rank);
  std::size_t staging_bytes() const { return medium_ ? kDeviceStagingBytes : kStagingBytes; }

  bool met(const Need& need) const;
  // The smallest value that the counter has on any rank.
  std::uint64_t least(std::atomic<std::uint64_t> RankPage::*counter) const;
  // Sets this rank's counter to `value`, then wakes the ranks that sleep.
  void advance(std::atomic<std::uint64_t> RankPage::*counter, std::uint64_t value);
  void ring_others();
  void ring(int rank);
  void ring_own();
  void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit);

  // Checks the other ranks while an operation waits. `what`: the operation, as text for error messages. `need`: the
  // condition for which it waits now. `last`: the last condition for which it will wait. A rank that meets `last` has
  // done its share, and may leave the group or die. Throws when a rank that does not meet `last` has died or left.
  // Throws when a rank that does not meet `need` lives but gives no heartbeat, or when the wait for such ranks has
  // lasted too long. Throws when a rank for which `through` does not hold has aborted.
  void check(const Need& need, const Need& last, const Through& through, const std::string& what,
             std::chrono::nanoseconds waited);
  // The same checks, for an operation that waits for one rank only.
  void check(int rank, const std::string& what, std::chrono::nanoseconds waited);
  // Throws the error with which another rank aborted, unless `through` holds for that rank. If rank `source` aborted,
  // throws its error in any case.
  void throw_if_aborted(const Through& through = {}, int source = -1) const;
  // For a rank whose memory this rank cannot map: throws the error with which another rank ended the group. If no other
  // rank has ended the group, throws PeerLost.
  [[noreturn]] void throw_unreachable(int rank, const std::string& why, const std::string& what) const;
  void leave();
  void publish_abort(const AbortCause& cause);
  const base::CoreShare& core_share() const { return core_share_; }
  // inline_bytes(): the size of the largest input that every rank can store in shared memory together with its call.
  // inlined(): the address where `rank` stores the input of call number `sequence`. The calls number `sequence` and
  // `sequence` - kInlineSlots use the same address.
  std::size_t inline_bytes() const { return inline_bytes_; }
  std::byte* inlined(int rank, std::uint64_t sequence) const;
  // Called when this rank posts a call. Numbers the call (`order` of the page). The calls of both lanes (groups with
  // the same ranks and memory) are numbered together.
  void note_order();

 private:
  struct Peer {
    std::shared_ptr<Segment> segment;
    RankPage* page = nullptr;
    std::shared_ptr<PeerHeap> heap;  // both lanes (groups with the same ranks) share `heap` and `pidfd`
    std::string host;
    pid_t pid = 0;
    std::size_t inline_bytes = 0;
    std::shared_ptr<UniqueFd> pidfd;  // not set for ranks of this process, or if the system refuses it
    std::uint64_t heartbeat = 0;
    std::chrono::steady_clock::time_point heartbeat_seen;
  };

  void meet(std::size_t inline_bytes);
  void join();
  base::CoreShare share_cores() const;
  // The text that a rank writes to the store, so that the other ranks find its memory.
  struct Announced {
    std::string host;
    SegmentAddress page;
    SegmentAddress heap;
    std::size_t inline_bytes = 0;
  };
  // Throws when `rank` runs another version than this rank, or was started with another number of ranks.
  Announced read_announcement(int rank, const std::string& text) const;
  void open_peer(int rank, const Announced& announced);
  std::string announcement() const;
  std::string who(int rank) const;        // "rank 2 (host a, pid 17)"
  std::string last_call(int rank) const;  // the last call of `rank`, as text for an error message
  [[noreturn]] void throw_lost(int rank, const std::string& how, const std::string& what) const;
  [[noreturn]] void throw_silent(int rank, std::chrono::nanoseconds silent, const std::string& what) const;
  bool has_died(int rank) const;
  void check_alive(int rank, const std::string& what) const;
  void check_heartbeat(int rank, const std::string& what, std::chrono::nanoseconds waited);
  void check_patience(const std::vector<int>& missing, const std::string& what, std::chrono::nanoseconds waited);

  GroupOptions options_;
  AlgorithmChoice algorithms_{"", Family::kSharedMemory};
  std::shared_ptr<Heap> heap_;
  const std::shared_ptr<Medium> medium_;
  std::shared_ptr<void> staging_;  // the staging buffer in device memory; null for a group on host memory
  std::vector<Peer> peers_;
  base::CoreShare core_share_;
  std::size_t inline_bytes_ = SIZE_MAX;
  bool shares_process_ = false;                          // another rank is a thread of this process
  Group* lane_ = nullptr;                                // the other lane: a Group of the same ranks; null if none
  std::chrono::steady_clock::time_point reported_ = {};  // when a long wait was last logged
};

// Converts a call in a rank's page into a CallSignature, with which other functions compare calls and describe them in
// error messages.
CallSignature signature_of(const Descriptor& descriptor);

}  // namespace reigen::comm::shared_memory
