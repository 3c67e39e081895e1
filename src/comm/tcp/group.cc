#include "comm/tcp/group.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "comm/forming/rank_reports.h"
#include "comm/tcp/acceptor.h"
#include "comm/tuning/tuned.h"

namespace reigen::comm::tcp {

namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

// throw_if_ended() reads the control connections at most once in this time, because it makes a system call per rank.
constexpr auto kFresh = milliseconds(1);
constexpr auto kFarewellTime = seconds(2);
constexpr auto kNewsTime = seconds(2);  // the signs of a rank's end reach all its connections within this time
// Routers and firewalls forget an idle connection, some of them after a few minutes. So an idle connection sends a TCP
// keep-alive packet this often.
constexpr auto kKeepAlive = seconds(60);
constexpr std::size_t kAlignment = 64;

}  // namespace

Group::Group(const GroupOptions& options)
    : options_(options),
      peers_(static_cast<std::size_t>(options.size)),
      control_(options.size),
      poll_fd_(REIGEN_SYSCALL(::epoll_create1(EPOLL_CLOEXEC))),
      wake_fd_(REIGEN_SYSCALL(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))),
      in_flight_(options.rank, options.size, kLanes) {
  watch(wake_fd_.get(), EPOLLIN);
  std::vector<Neighbour> neighbours = join(options_);
  std::vector<pid_t> here;
  std::size_t place = 0;
  for (int q = 0; q < size(); ++q) {
    Neighbour& neighbour = neighbours[static_cast<std::size_t>(q)];
    Peer& peer = peers_[static_cast<std::size_t>(q)];
    peer.host = neighbour.host;
    peer.pid = neighbour.pid;
    if (q == rank()) place = here.size();
    if (neighbour.here) here.push_back(neighbour.seen_as);
    if (!neighbour.sockets.empty()) peer.loopback = in_one_machine(neighbour.sockets.front());
    for (std::size_t i = 0; i < neighbour.sockets.size(); ++i) {
      // With EPOLLET, epoll reports each change only once. So data that have arrived but are not wanted yet do not wake
      // a sleeping thread again and again.
      watch(neighbour.sockets[i].fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
      net::keep_alive(neighbour.sockets[i].fd(), kKeepAlive);
      if (i == 0) {
        control_.connect(q, std::move(neighbour.sockets[i]));
      } else {
        peer.streams.emplace_back(std::move(neighbour.sockets[i]), bytes_sent_);
      }
    }
  }
  algorithms_ = AlgorithmChoice(tuning::rules_in_force(options, Family::kTcp), Family::kTcp);
  core_share_ = base::share_cores(here, place);
}

void Group::watch(int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  REIGEN_SYSCALL(::epoll_ctl(poll_fd_.get(), EPOLL_CTL_ADD, fd, &event));
}

std::span<Stream> Group::streams(int rank, std::size_t lane) {
  auto& streams = peers_[static_cast<std::size_t>(rank)].streams;
  if (streams.empty()) return {};
  const std::size_t connections = (streams.size() - 1) / kLanes;
  return std::span(streams).subspan(1 + lane * connections, connections);
}

void Group::note_call(int rank, const Header& header) {
  Header& last = peers_[static_cast<std::size_t>(rank)].last_call;
  if (last.mark == 0 || header.sequence >= last.sequence) last = header;
}

std::byte* Group::scratch(std::size_t lane, std::size_t bytes) {
  Scratch& scratch = scratch_[lane];
  if (bytes <= scratch.bytes) return scratch.memory.get();
  scratch.memory.reset();
  const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  scratch.memory.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, size)));
  scratch.bytes = scratch.memory ? size : 0;
  if (!scratch.memory) {
    throw IoError(fmt::format("out of memory: {} bytes for partial sums", size), ExitCode::kOsResource);
  }
  return scratch.memory.get();
}

// If another thread calls wake() between `ready` and epoll_wait, the eventfd keeps the event, and the sleep ends at
// once.
void Group::sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit) {
  if (ready() || limit.count() <= 0) return;
  std::array<epoll_event, 16> events;
  const auto timeout = static_cast<int>(std::chrono::ceil<milliseconds>(limit).count());
  const int count = ::epoll_wait(poll_fd_.get(), events.data(), static_cast<int>(events.size()), timeout);
  for (int i = 0; i < count; ++i) {
    if (events[static_cast<std::size_t>(i)].data.fd != wake_fd_.get()) continue;
    eventfd_t ignored = 0;
    ::eventfd_read(wake_fd_.get(), &ignored);
  }
}

void Group::wake() { ::eventfd_write(wake_fd_.get(), 1); }

std::string Group::who(int rank) const {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  return describe_rank(rank, peer.host, peer.pid);
}

std::string Group::last_call(int rank) const {
  const Header& header = peers_[static_cast<std::size_t>(rank)].last_call;
  if (header.mark == 0) return "it had not called anything yet";
  return fmt::format("its last call was #{} {}", header.sequence, describe(header.call));
}

void Group::throw_lost(int rank, const std::string& how, const std::string& what) const {
  throw PeerLost(rank, to_string(lost_rank(who(rank), how, options_.name, last_call(rank), what)));
}

// Whether `rank` is gone and nothing more arrives from it on the connections of this lane (join.h). The farewell or the
// end of a rank shows on its control connection, and may overtake its last data on other connections. So the rank
// counts as gone only when this rank has read the last data too.
bool Group::has_no_more(int rank, std::size_t lane) {
  const Control::Peer peer = control_.peer(rank);
  if (!peer.ended && !peer.left && !peer.cause) return false;
  const auto data = streams(rank, lane);
  return std::any_of(data.begin(), data.end(), [](Stream& s) { return s.stuck(); }) ||
         std::all_of(data.begin(), data.end(), [](Stream& s) { return s.silent(); });
}

// When a process ends, all its connections end. So if one of a rank's connections still stands, the rank seems to live.
// A connection with unread data does not count, because its end may have arrived after these data.
bool Group::seems_to_live(int rank) const {
  const auto& streams = peers_[static_cast<std::size_t>(rank)].streams;
  return std::any_of(streams.begin(), streams.end(), [](const Stream& s) {
    const Condition condition = condition_of(s.fd());
    return condition.stands && !condition.unread;
  });
}

// Throws for a rank of `silent` that is gone. Looks first for a rank that died without a farewell, because the other
// ranks may have ended because of that death.
void Group::check_gone(const std::vector<int>& silent, const std::string& what) const {
  for (const int q : silent) {
    const Control::Peer peer = control_.peer(q);
    if (!peer.ended || peer.left || peer.cause || seems_to_live(q)) continue;
    throw_lost(q, fmt::format("died ({})", peer.why), what);
  }
  for (const int q : silent) {
    const Control::Peer peer = control_.peer(q);
    if (peer.left) throw_lost(q, "left the group", what);
    if (peer.cause) throw_cause(*peer.cause);
  }
}

void Group::throw_broken(int rank, const std::string& why, const std::string& what) const {
  throw_lost(rank, fmt::format("is out of reach: a connection to it broke while it lives ({})", why), what);
}

// A firewall or a router may end one connection of a rank that lives. This function throws if that has happened to the
// control connection. If the rank died instead, its other connections may end later, after data that are still in
// flight. So the function does not throw before they have been quiet for kNewsTime.
void Group::check_control(int rank, const std::string& what) const {
  const Control::Peer known = control_.peer(rank);
  if (!known.ended || known.left || Deadline::Clock::now() - known.ended_since <= kNewsTime) return;
  const auto& streams = peers_[static_cast<std::size_t>(rank)].streams;
  const bool quiet = std::all_of(streams.begin(), streams.end(),
                                 [](const Stream& s) { return condition_of(s.fd()).quiet > kNewsTime; });
  if (!quiet || !seems_to_live(rank)) return;
  if (known.cause) throw_cause(*known.cause);
  throw_broken(rank, known.why, what);
}

// If `rank` ended the group after it had completed this call, it had sent all its data of the call before. If such data
// are missing for longer than the heartbeat timeout, they will never arrive, and this function throws.
void Group::check_aborted(int rank, std::size_t lane, std::chrono::nanoseconds waited) {
  const Control::Peer known = control_.peer(rank);
  if (!known.cause || waited <= options_.heartbeat_timeout) return;
  const auto data = streams(rank, lane);
  const bool missing = std::any_of(data.begin(), data.end(), [this](const Stream& s) {
    return !s.receives_done() && condition_of(s.fd()).quiet > options_.heartbeat_timeout;
  });
  if (missing) throw_cause(*known.cause);
}

// Throws if a connection to `rank` has been broken for longer than kNewsTime. If the rank has died or left, or has
// ended the group, only the message connection and the connections of this call's lane (join.h) count. The connections
// of the other lane do not count, because the rank may have ended before it made the call of that lane. The data of
// this call may still arrive then.
void Group::check_connections(int rank, std::optional<std::size_t> lane, const std::string& what) {
  check_control(rank, what);
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  const Control::Peer known = control_.peer(rank);
  const bool has_ended = known.ended || known.left || known.cause;
  const auto now = Deadline::Clock::now();
  std::vector<Stream*> looked_at;
  if (has_ended) {
    looked_at.push_back(&messages(rank));
    if (lane) {
      for (Stream& stream : streams(rank, *lane)) looked_at.push_back(&stream);
    }
  } else {
    for (Stream& stream : peer.streams) looked_at.push_back(&stream);
  }
  const auto broken = std::find_if(looked_at.begin(), looked_at.end(), [](Stream* s) { return s->stuck(); });
  if (broken == looked_at.end()) {
    peer.broken_since = {};
  } else if (peer.broken_since == Deadline::Clock::time_point{}) {
    peer.broken_since = now;
  } else if (now - peer.broken_since > kNewsTime) {
    throw_broken(rank, (*broken)->why(), what);
  }
}

// Throws if data that this rank has sent are not acknowledged for too long. Checks the connections to all ranks, not
// only to the ranks for which this rank waits. Another rank may wait for data of this rank, and only the sender can see
// that the data do not arrive.
void Group::check_answers(const std::string& what, std::chrono::nanoseconds waited) {
  const auto now = Deadline::Clock::now();
  for (int q = 0; q < size(); ++q) {
    if (q == rank()) continue;
    const Control::Peer known = control_.peer(q);
    // If a rank is silent on its control connection too, the reason is not one broken connection, and
    // check_heartbeat() reports the rank.
    const bool lives = !known.ended && !known.left && now - known.last_sign < kNewsTime;
    for (Stream& stream : peers_[static_cast<std::size_t>(q)].streams) {
      const auto unanswered = std::min(stream.unanswered(), waited);
      if (!lives || unanswered <= options_.heartbeat_timeout) continue;
      throw_broken(q, fmt::format("nothing came back for {} s", duration_cast<seconds>(unanswered).count()), what);
    }
  }
}

void Group::check_heartbeat(int rank, const std::string& what, std::chrono::nanoseconds waited) const {
  const Control::Peer known = control_.peer(rank);
  const auto quiet = Deadline::Clock::now() - known.last_sign;
  const auto silent = std::min<std::chrono::nanoseconds>(quiet, waited);
  if (silent <= options_.heartbeat_timeout) return;
  throw_lost(rank, known.left ? "left the group, and what it sent before does not come" : silent_for(silent), what);
}

void Group::check_patience(const std::vector<int>& absent, const std::string& what, std::chrono::nanoseconds waited) {
  if (waited < options_.report_after) reported_ = false;
  if (waited >= options_.timeout) {
    throw Timeout(absent_ranks(what, waited, absent, last_call(absent.front())));
  }
  if (waited >= options_.report_after && !reported_) {
    reported_ = true;
    warn_of_absent(what, waited, absent, who(absent.front()), last_call(absent.front()), options_.timeout);
  }
}

void Group::check(const std::vector<int>& needed, const std::vector<int>& absent, std::uint64_t sequence,
                  const std::string& what, std::chrono::nanoseconds waited) {
  last_look_ = {};
  throw_if_ended(sequence);
  if (needed.empty()) return;
  const std::size_t lane = lane_of(sequence);
  std::vector<int> silent;
  std::copy_if(needed.begin(), needed.end(), std::back_inserter(silent), [&](int q) { return has_no_more(q, lane); });
  check_gone(silent, what);
  for (const int q : needed) {
    check_aborted(q, lane, waited);
    check_connections(q, lane, what);
    check_heartbeat(q, what, waited);
  }
  check_answers(what, waited);
  check_patience(absent, what, waited);
}

void Group::check_message(int rank, bool nothing_comes, const std::string& what, std::chrono::nanoseconds waited) {
  last_look_ = {};
  throw_if_ended(UINT64_MAX);  // messages have no call number, so any end of the group ends them
  if (nothing_comes) check_gone({rank}, what);
  check_connections(rank, std::nullopt, what);
  check_heartbeat(rank, what, waited);
  check_answers(what, waited);
  check_patience({rank}, what, waited);
}

void Group::look_for(const std::vector<int>& ranks) {
  control_.look();
  if (const auto cause = control_.cause_for(UINT64_MAX)) throw_cause(*cause);
  const std::string what = fmt::format("rank {} of {} forming a part of group \"{}\"", rank(), size(), options_.name);
  check_gone(ranks, what);  // even if unread data of a rank remain, because the new group needs the rank itself
  for (const int q : ranks) {
    if (q != rank()) check_control(q, what);
  }
}

void Group::throw_if_ended(std::uint64_t sequence) {
  const auto now = Deadline::Clock::now();
  if (now - last_look_ < kFresh) return;
  last_look_ = now;
  control_.look();
  if (const auto cause = control_.cause_for(sequence)) throw_cause(*cause);
}

void Group::publish_abort(const AbortCause& cause) {
  if (over_) return;
  over_ = true;
  control_.publish_abort(cause, in_flight_.completed());
  for (Peer& peer : peers_) {
    for (Stream& stream : peer.streams) stream.drop();
  }
}

// Whether all ranks have received what this rank sent on control connections and, if `data` is true, on all
// connections. A rank waits for this before it closes them. If a connection with unread data is closed, the kernel
// resets it, and data that are not delivered yet are lost. A rank from which nothing has arrived for kFarewellTime is
// skipped, because it takes no data either.
bool Group::all_delivered(bool data) const {
  for (int q = 0; q < size(); ++q) {
    const Peer& peer = peers_[static_cast<std::size_t>(q)];
    const Control::Peer known = control_.peer(q);
    if (q == rank() || known.ended || Deadline::Clock::now() - known.last_sign > kFarewellTime) continue;
    if (control_.has_unsent(q) || !tcp::all_delivered(control_.fd(q), peer.loopback)) return false;
    for (const Stream& stream : peer.streams) {
      if (data && !tcp::all_delivered(stream.fd(), peer.loopback)) return false;
    }
  }
  return true;
}

// Waits for delivery after an abort too, so that the cause of the abort reaches the other ranks.
void Group::leave() {
  if (left_) return;
  left_ = true;
  const bool aborted = std::exchange(over_, true);
  if (!aborted) control_.say_farewell();
  const Deadline deadline = Deadline::after(kFarewellTime);
  while (!all_delivered(!aborted) && !deadline.expired()) {
    ::poll(nullptr, 0, 1);
    control_.look();  // sends control messages for which there was no room before
  }
  for (const Peer& peer : peers_) {
    for (const Stream& stream : peer.streams) ::shutdown(stream.fd(), SHUT_WR);
  }
}

}  // namespace reigen::comm::tcp
