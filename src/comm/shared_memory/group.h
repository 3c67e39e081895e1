// The ranks of a group on one machine: finding each other, seeing who is alive, sleeping and waking.
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

// A counter of the page that every rank must bring to `value`.
struct Need {
  std::atomic<std::uint64_t> RankPage::*counter = nullptr;
  std::uint64_t value = 0;

  bool met_by(const RankPage& page) const { return (page.*counter).load() >= value; }
};

// What a rank has counted that is through with a call: if it aborts then, that is of a later one. As it is: nobody is.
struct Through {
  std::uint64_t verified = UINT64_MAX;
  std::uint64_t finished = 0;

  bool holds_for(const RankPage& page) const {
    return page.verified.load() >= verified && page.finished.load() >= finished;
  }
};

class Group {
 public:
  // Blocks until all ranks have mapped each other's pages. Throws Timeout naming who did not come, BackendError when
  // ranks cannot reach each other's memory. medium: whose memory the heap's is, null: the host's. whole: the group that
  // this one is split off.
  Group(const GroupOptions& options, std::shared_ptr<Heap> heap, std::shared_ptr<Medium> medium,
        const Group* whole = nullptr);
  ~Group();
  Group(const Group&) = delete;  // other ranks hold its page
  Group& operator=(const Group&) = delete;

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const GroupOptions& options() const { return options_; }
  const AlgorithmChoice& algorithms() const { return algorithms_; }
  RankPage& page() { return *peers_[static_cast<std::size_t>(rank())].page; }
  RankPage& page_of(int rank) { return *peers_[static_cast<std::size_t>(rank)].page; }
  // What `owner` tells `other`.
  PairBox& box(int owner, int other) {
    auto* const behind = reinterpret_cast<std::byte*>(&page_of(owner)) + sizeof(RankPage);
    return reinterpret_cast<PairBox*>(behind)[other];
  }
  // Throws IoError when the owner is gone, InvalidArgument when this rank has dropped common memory that is in use.
  std::byte* resolve(int rank, const Location& location);
  Heap& heap() { return *heap_; }
  // Null: the memory is the host's.
  const std::shared_ptr<Medium>& medium() const { return medium_; }
  // Whether a stream may wait for a call of the group. The default stream of a device is one for all ranks of a
  // process: what one rank has it wait for may be what another one is yet to call behind it.
  bool lets_follow(const Stream& stream) const { return stream.handle != nullptr || !shares_process_; }
  // A rank's staging area, where this rank reaches it.
  std::byte* staging_of(int rank);
  std::size_t staging_bytes() const { return medium_ ? kDeviceStagingBytes : kStagingBytes; }

  bool met(const Need& need) const;
  // Of all ranks.
  std::uint64_t least(std::atomic<std::uint64_t> RankPage::*counter) const;
  // Counts, then wakes the ranks that sleep.
  void advance(std::atomic<std::uint64_t> RankPage::*counter, std::uint64_t value);
  void ring_others();
  void ring(int rank);
  void ring_own();
  void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit);

  // Throws when one of the ranks that have not met `need` is dead, stopped or gone, or when the wait has lasted too
  // long; when one that has not met `last` has gone; when one that is not `through` has aborted. `what` names the
  // waiting operation.
  void check(const Need& need, const Need& last, const Through& through, const std::string& what,
             std::chrono::nanoseconds waited);
  // The same for one rank that `what` waits for.
  void check(int rank, const std::string& what, std::chrono::nanoseconds waited);
  // Throws what another rank aborted with, if one has that is not `through`, or that is `source`.
  void throw_if_aborted(const Through& through = {}, int source = -1) const;
  // A rank's memory cannot be mapped: it ended, or another rank ended the group.
  [[noreturn]] void throw_unreachable(int rank, const std::string& why, const std::string& what) const;
  void leave();
  void publish_abort(const AbortCause& cause);
  const base::CoreShare& core_share() const { return core_share_; }
  // What every rank has room for beside a call, and where that lies: call `sequence` has the place of the one
  // kInlineSlots before.
  std::size_t inline_bytes() const { return inline_bytes_; }
  std::byte* inlined(int rank, std::uint64_t sequence) const;

 private:
  struct Peer {
    std::shared_ptr<Segment> segment;
    RankPage* page = nullptr;
    std::unique_ptr<PeerHeap> heap;
    std::string host;
    pid_t pid = 0;
    std::size_t inline_bytes = 0;
    UniqueFd pidfd;  // none for ranks of this process
    std::uint64_t heartbeat = 0;
    std::chrono::steady_clock::time_point heartbeat_seen;
  };

  void join();
  base::CoreShare share_cores() const;
  // What a rank tells the others to find its memory.
  struct Announced {
    std::string host;
    SegmentAddress page;
    SegmentAddress heap;
    std::size_t inline_bytes = 0;
  };
  // Throws when that rank runs another version, or counts other ranks than this one.
  Announced read_announcement(int rank, const std::string& text) const;
  void open_peer(int rank, const Announced& announced);
  std::string announcement() const;
  std::string who(int rank) const;        // "rank 2 (host a, pid 17)"
  std::string last_call(int rank) const;  // what it last did
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
  std::shared_ptr<void> staging_;  // of a device's memory
  std::vector<Peer> peers_;
  base::CoreShare core_share_;
  std::size_t inline_bytes_ = SIZE_MAX;
  bool shares_process_ = false;                          // with another rank
  std::chrono::steady_clock::time_point reported_ = {};  // when a long wait was last told
};

// As other ranks see it.
CallSignature signature_of(const Descriptor& descriptor);

}  // namespace reigen::comm::shared_memory
