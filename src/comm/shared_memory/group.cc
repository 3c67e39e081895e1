#include "comm/shared_memory/group.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "base/machine/host_name.h"
#include "comm/forming/forming.h"
#include "comm/forming/rank_reports.h"
#include "comm/tuning/tuned.h"

namespace reigen::comm::shared_memory {

namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kEnding = milliseconds(300);  // the end of a process is visible at most this long after its files close
constexpr auto kJoinSlice = seconds(1);      // a waiting rank checks this often which ranks are missing

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout, nullptr, 0);
}

std::size_t page_bytes(int ranks) { return sizeof(RankPage) + static_cast<std::size_t>(ranks) * sizeof(PairBox); }

void ring_bell(RankPage& page) {
  page.bell.fetch_add(1);
  futex(&page.bell, FUTEX_WAKE, INT32_MAX, nullptr);
}

}  // namespace

// For a call with blocks of one size, and for an all_to_all_v, `counts` of the descriptor still contains the values of
// an earlier call. So this function does not read `counts` for them.
CallSignature signature_of(const Descriptor& d) {
  const bool uneven = is_uneven(d.kind);
  const bool compares_counts = uneven && d.kind != OperationKind::kAllToAllV;
  return {.count = uneven ? 0 : d.count,
          .counts = compares_counts ? CountsDigest{d.count, d.counts_hash, d.counts} : CountsDigest{},
          .root = d.root,
          .kind = d.kind,
          .type = d.type,
          .op = d.op,
          .tag = d.tag};
}

Group::Group(const GroupOptions& options, std::shared_ptr<Heap> heap, std::shared_ptr<Medium> medium,
             const Group* whole)
    : options_(options),
      heap_(std::move(heap)),
      medium_(std::move(medium)),
      peers_(static_cast<std::size_t>(options.size)) {
  // Decides whether each rank has a core of its own. The ranks of a split group share the processors with all ranks of
  // `whole`, so this rank's share of the processors in `whole` decides. If the group is not split from another, the
  // processes of the other ranks are not known yet, so the number of ranks decides.
  const bool cores_for_all = whole == nullptr ? base::have_cores(size()) : base::have_cores(whole->core_share_, 1);
  meet(inline_bytes_for(size(), cores_for_all));
  core_share_ = whole == nullptr ? share_cores() : whole->core_share_;
  algorithms_ = AlgorithmChoice(tuning::rules_in_force(options, Family::kSharedMemory), Family::kSharedMemory);
}

Group::Group(const GroupOptions& options, Group& first)
    : options_(options),
      algorithms_(first.algorithms_),
      heap_(first.heap_),
      medium_(first.medium_),
      peers_(static_cast<std::size_t>(options.size)),
      core_share_(first.core_share_),
      lane_(&first) {
  meet(first.peers_[static_cast<std::size_t>(rank())].inline_bytes);
  first.lane_ = this;
}

// Makes this rank's page, and opens the pages of the other ranks.
void Group::meet(std::size_t inline_bytes) {
  auto& own = peers_[static_cast<std::size_t>(rank())];
  static_assert(sizeof(RankPage) % alignof(PairBox) == 0);
  own.inline_bytes = inline_bytes;
  const std::size_t bytes = page_bytes(size()) + kInlineSlots * own.inline_bytes;
  own.segment = Segment::create((bytes + 4095) / 4096 * 4096);
  own.page = new (own.segment->data()) RankPage;
  if (medium_) {
    staging_ = heap_->allocate(kDeviceStagingBytes);
    own.page->staging_at = heap_->locate(staging_.get(), kDeviceStagingBytes);
  }
  for (int q = 0; q < size(); ++q) new (&box(rank(), q)) PairBox;
  own.host = base::host_name();
  own.pid = ::getpid();
  join();
}

Group::~Group() {
  leave();
  if (lane_ != nullptr) lane_->lane_ = nullptr;
}

base::CoreShare Group::share_cores() const {
  std::vector<pid_t> here;
  for (const Peer& peer : peers_) here.push_back(peer.pid);
  return base::share_cores(here, static_cast<std::size_t>(rank()));
}

void Group::leave() {
  if (page().state.load() != RankState::kAlive) return;
  page().state.store(RankState::kLeft);
  for (auto& peer : peers_) {
    if (peer.page != nullptr && peer.page != &page()) ring_bell(*peer.page);
  }
}

std::string Group::announcement() const {
  const auto& own = peers_[static_cast<std::size_t>(rank())];
  const SegmentAddress& page = own.segment->address();
  const SegmentAddress& heap = heap_->directory_address();
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", kPageVersion, own.host, page.pid, page.fd, page.inode,
                     page.size, heap.fd, heap.inode, heap.size, size(), own.inline_bytes);
}

Group::Announced Group::read_announcement(int rank, const std::string& text) const {
  Announced a;
  std::istringstream in(text);
  std::uint32_t version = 0;
  int ranks = 0;
  in >> version;
  check_same_version("shared memory", rank, in ? version : 0, kPageVersion);
  in >> a.host >> a.page.pid >> a.page.fd >> a.page.inode >> a.page.size;
  in >> a.heap.fd >> a.heap.inode >> a.heap.size >> ranks >> a.inline_bytes;
  a.heap.pid = a.page.pid;
  check_same_size(options_, rank, ranks);
  return a;
}

void Group::open_peer(int rank, const Announced& announced) {
  auto& peer = peers_[static_cast<std::size_t>(rank)];
  const SegmentAddress& page = announced.page;
  peer.host = announced.host;
  peer.inline_bytes = announced.inline_bytes;
  // All ranks use the smallest value that a rank has announced. So they make the same choices, even if their containers
  // give them different numbers of cores.
  inline_bytes_ = std::min(inline_bytes_, announced.inline_bytes);
  peer.pid = page.pid;
  shares_process_ = shares_process_ || (rank != this->rank() && page.pid == ::getpid());
  const Peer* const in_lane = lane_ == nullptr ? nullptr : &lane_->peers_[static_cast<std::size_t>(rank)];
  if (in_lane != nullptr) {
    peer.pidfd = in_lane->pidfd;
    peer.heap = in_lane->heap;
  } else if (page.pid != ::getpid()) {
    peer.pidfd = std::make_shared<UniqueFd>(static_cast<int>(::syscall(SYS_pidfd_open, page.pid, 0)));
    if (!*peer.pidfd && errno == ESRCH) throw PeerLost(rank, died_while_forming(who(rank), options_));
    // Without pidfd (an old kernel, a sandbox) this rank notices the death of a rank only by its missing heartbeat.
    if (!*peer.pidfd) base::log_warning("pidfd_open: {}; the death of a rank is seen late", base::errno_text(errno));
  }
  try {
    if (rank != this->rank()) peer.segment = Segment::open(page);
    if (!peer.heap) peer.heap = std::make_shared<PeerHeap>(announced.heap, medium_);
    peer.page = reinterpret_cast<RankPage*>(peer.segment->data());
    if (medium_) (void)peer.heap->resolve(peer.page->staging_at);  // throws if this rank's device cannot reach it
  } catch (const IoError& error) {
    // A process that ends closes its files a moment before has_died() can see its end. So ask has_died() repeatedly.
    for (const Deadline deadline = Deadline::after(kEnding); !has_died(rank) && !deadline.expired();) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    if (has_died(rank)) throw PeerLost(rank, died_while_forming(who(rank), options_));
    throw BackendError(
        Report{.what = fmt::format("rank {} (host {}) cannot reach the shared memory of {}", this->rank(),
                                   peers_[static_cast<std::size_t>(this->rank())].host, who(rank)),
               .got = error.what(),
               .expected = "all ranks on one machine",
               .fix = "run on one machine, as one user and in one container; or take the backend auto or tcp"});
  }
}

void Group::join() {
  Forming forming(options_, "", kJoinSlice, [&](const std::vector<int>& missing) {
    for (const int q : missing) {
      if (has_died(q)) throw PeerLost(q, died_while_forming(who(q), options_));
    }
  });
  forming.enter();
  const std::vector<std::string> announcements = forming.exchange("rank", announcement());
  try {
    for (int q = 0; q < size(); ++q) {
      open_peer(q, read_announcement(q, announcements[static_cast<std::size_t>(q)]));
    }
  } catch (const Error& error) {
    forming.end_for_all(error);
  }
  forming.complete();
}

std::byte* Group::inlined(int rank, std::uint64_t sequence) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  return reinterpret_cast<std::byte*>(peer.page) + page_bytes(size()) + sequence % kInlineSlots * peer.inline_bytes;
}

std::byte* Group::staging_of(int rank) {
  return medium_ ? resolve(rank, page_of(rank).staging_at) : page_of(rank).staging.data();
}

std::byte* Group::resolve(int rank, const Location& location) {
  if (location.visible != Visible::kInCommon) return peers_[static_cast<std::size_t>(rank)].heap->resolve(location);
  std::byte* const data = heap_->resolve_common(location);
  REIGEN_CHECK(data != nullptr,
               "rank {} passes memory from allocate_shared() that rank {} has dropped\n  got: a call of group \"{}\"   "
               "expected: every rank keeps it until the last call that uses it is complete",
               rank, this->rank(), options_.name);
  return data;
}

bool Group::met(const Need& need) const {
  return std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) { return need.met_by(*peer.page); });
}

std::uint64_t Group::least(std::atomic<std::uint64_t> RankPage::*counter) const {
  std::uint64_t least = UINT64_MAX;
  for (const Peer& peer : peers_) least = std::min(least, (peer.page->*counter).load());
  return least;
}

void Group::advance(std::atomic<std::uint64_t> RankPage::*counter, std::uint64_t value) {
  (page().*counter).store(value);
  ring_others();
}

void Group::ring_others() {
  for (auto& peer : peers_) {
    if (peer.page != &page() && peer.page->sleepers.load() > 0) ring_bell(*peer.page);
  }
}

void Group::ring(int rank) {
  if (page_of(rank).sleepers.load() > 0) ring_bell(page_of(rank));
}

void Group::ring_own() { ring_bell(page()); }

void Group::sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit) {
  page().sleepers.fetch_add(1);
  const std::uint32_t seen = page().bell.load();
  if (!ready() && limit.count() > 0) {
    const auto whole = duration_cast<seconds>(limit);
    const timespec timeout{static_cast<time_t>(whole.count()), static_cast<long>((limit - whole).count())};
    futex(&page().bell, FUTEX_WAIT, seen, &timeout);
  }
  page().sleepers.fetch_sub(1);
}

std::string Group::who(int rank) const {
  const auto& peer = peers_[static_cast<std::size_t>(rank)];
  return describe_rank(rank, peer.host, peer.pid);
}

void Group::note_order() {
  if (lane_ != nullptr) page().order.store(std::max(page().order.load(), lane_->page().order.load()) + 1);
}

std::string Group::last_call(int rank) const {
  const auto page_in = [&](const Group& group) -> const RankPage& {
    return *group.peers_[static_cast<std::size_t>(rank)].page;
  };
  const bool in_lane = lane_ != nullptr && page_in(*lane_).order.load() > page_in(*this).order.load();
  const RankPage& page = page_in(in_lane ? *lane_ : *this);
  const std::uint64_t posted = page.posted.load();
  if (posted == 0) return "it had not called anything yet";
  return fmt::format("its last call was #{} {}", posted - 1,
                     describe(signature_of(page.ring[(posted - 1) % kRingSlots].call)));
}

void Group::throw_lost(int rank, const std::string& how, const std::string& what) const {
  throw PeerLost(rank, to_string(lost_rank(who(rank), how, options_.name, last_call(rank), what)));
}

// Returns false also for ranks whose death cannot be seen: ranks of this process, ranks without a pidfd, and ranks for
// which open_peer() has not run yet.
bool Group::has_died(int rank) const {
  const std::shared_ptr<UniqueFd>& handle = peers_[static_cast<std::size_t>(rank)].pidfd;
  if (!handle || !*handle) return false;
  pollfd poll{handle->get(), POLLIN, 0};
  return ::poll(&poll, 1, 0) == 1;
}

void Group::check_alive(int rank, const std::string& what) const {
  const auto& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.page->state.load() == RankState::kLeft) throw_lost(rank, "left the group", what);
  if (has_died(rank)) throw_lost(rank, "died", what);
}

void Group::check_heartbeat(int rank, const std::string& what, std::chrono::nanoseconds waited) {
  auto& peer = peers_[static_cast<std::size_t>(rank)];
  const auto now = std::chrono::steady_clock::now();
  const std::uint64_t beat = peer.page->heartbeat.load();
  if (beat != peer.heartbeat) {
    peer.heartbeat = beat;
    peer.heartbeat_seen = now;
  }
  const auto silent = std::min<std::chrono::nanoseconds>(now - peer.heartbeat_seen, waited);
  if (silent > options_.heartbeat_timeout) {
    throw_silent(rank, silent, what);
  }
}

void Group::throw_silent(int rank, std::chrono::nanoseconds silent, const std::string& what) const {
  throw_lost(rank, silent_for(silent), what);
}

void Group::check_patience(const std::vector<int>& missing, const std::string& what, std::chrono::nanoseconds waited) {
  if (waited >= options_.timeout) {
    throw Timeout(absent_ranks(what, waited, missing, last_call(missing.front())));
  }
  const auto now = std::chrono::steady_clock::now();
  if (waited >= options_.report_after && now - reported_ >= options_.report_after) {
    reported_ = now;
    warn_of_absent(what, waited, missing, who(missing.front()), last_call(missing.front()), options_.timeout);
  }
}

void Group::throw_if_aborted(const Through& through, int source) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // orders earlier reads of data before the reads of `state`
  for (int q = 0; q < size(); ++q) {
    const RankPage& page = *peers_[static_cast<std::size_t>(q)].page;
    if (page.state.load() != RankState::kAborted || (q != source && through.holds_for(page))) continue;
    throw_cause({static_cast<AbortCause::Kind>(page.cause_kind), page.cause_rank, page.cause});
  }
}

void Group::throw_unreachable(int rank, const std::string& why, const std::string& what) const {
  throw_if_aborted();
  throw_lost(rank, fmt::format("died ({})", why), what);
}

void Group::check(const Need& need, const Need& last, const Through& through, const std::string& what,
                  std::chrono::nanoseconds waited) {
  throw_if_aborted(through);
  std::vector<int> missing;
  for (int q = 0; q < size(); ++q) {
    if (q == rank()) continue;
    if (!last.met_by(page_of(q))) check_alive(q, what);
    if (!need.met_by(page_of(q))) missing.push_back(q);
  }
  if (missing.empty()) return;
  for (const int q : missing) check_heartbeat(q, what, waited);
  check_patience(missing, what, waited);
}

void Group::check(int rank, const std::string& what, std::chrono::nanoseconds waited) {
  throw_if_aborted();
  check_alive(rank, what);
  check_heartbeat(rank, what, waited);
  check_patience({rank}, what, waited);
}

void Group::publish_abort(const AbortCause& cause) {
  heap_->quarantine();
  if (page().state.load() == RankState::kAborted) return;
  page().cause_kind = static_cast<std::uint32_t>(cause.kind);
  page().cause_rank = cause.rank;
  const std::size_t length = std::min(cause.text.size(), sizeof(page().cause) - 1);
  std::memcpy(page().cause, cause.text.data(), length);
  page().state.store(RankState::kAborted);
  for (auto& peer : peers_) {
    if (peer.page != &page()) ring_bell(*peer.page);
  }
}

}  // namespace reigen::comm::shared_memory
