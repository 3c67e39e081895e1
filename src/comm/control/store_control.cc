#include "comm/control/store_control.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/machine/cores.h"
#include "comm/control/channel.h"
#include "comm/control/store_thread.h"
#include "comm/forming/rank_reports.h"

namespace reigen::comm::control {

namespace {

using namespace std::chrono_literals;
using std::chrono::duration_cast;
using std::chrono::seconds;

constexpr auto kJoinSlice = 1s;      // a rank that waits checks this often which ranks are missing
constexpr auto kQuiet = 100ms;       // shorter waits are normal and are not checked
constexpr auto kWatchFor = 1s;       // the StoreThread watches the other ranks for this long after the last check()
constexpr auto kHearAll = 1500ms;    // how long the others may take to notice a call for attention (store_control.h)
constexpr auto kNamedWithin = 3s;    // after a mismatch: how long all ranks may take to write their last calls
constexpr auto kLastWords = 1s;      // how long a message of a rank that has left may take to arrive
constexpr auto kVerdictWithin = 1s;  // time for the StoreThread to write an error; then this rank throws it

std::string who(const Channel& channel, int rank) {
  const PeerProcess& peer = channel.peers[static_cast<std::size_t>(rank)];
  return describe_rank(rank, peer.host, peer.pid);
}

[[noreturn]] void throw_unnamed(const Channel& channel, const CallRecord& record) {
  throw CollectiveMismatch(
      to_string(Report{.what = fmt::format("[{}] group \"{}\" call #{}: the ranks made different calls",
                                           name_of(record.call.kind), channel.options.name, record.sequence),
                       .got = fmt::format("rank {}: {}", channel.options.rank, describe(record.call)),
                       .expected = "the same on every rank; the others did not say in time what they called",
                       .fix = "every rank must make the same calls in the same order"}));
}

// One check of a call or message that waits. The caller has locked the channel.
struct Look {
  Channel& channel;
  const std::string what;
  const std::chrono::nanoseconds waited;
  const Watch watch = Watch::kHere;
  const std::uint64_t sequence = UINT64_MAX;  // number of the call that waits; not set for a message
  const int partner = -1;                     // the other rank of the message that waits; -1 for a call
  std::vector<int> missing = {};              // ranks that have not made the call

  std::string last_call(int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    const bool known = channel.heard[at] || channel.states[at].calls > 0;
    return known ? channel.states[at].last_call() : "what it called last is not known";
  }

  AbortCause lost(int rank, const std::string& how) const {
    return {AbortCause::Kind::kPeerLost, rank,
            to_string(lost_rank(who(channel, rank), how, channel.options.name, last_call(rank), what))};
  }

  // A process may write to the store that it has made the call and left the group, and then end in good order. This
  // rank may see the end of the process before it has read that state. So a rank counts as dead only when all states
  // have been read twice after the end of its process was seen.
  bool is_dead(int rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (!has_died(channel.peers[at])) return false;
    if (!channel.died_at[at]) channel.died_at[at] = channel.reads;
    return channel.reads >= *channel.died_at[at] + 2;
  }

  // Returns the error for a lost rank, if this rank waits for a rank that is lost.
  std::optional<AbortCause> loss() {
    const auto now = Clock::now();
    for (int q = 0; q < channel.options.size; ++q) {
      const auto at = static_cast<std::size_t>(q);
      const RankState& state = channel.states[at];
      const bool came = state.calls > sequence;
      if (q == channel.options.rank || (partner >= 0 && q != partner) || (came && state.left)) continue;
      if (watch == Watch::kInTheEngine) {
        if (!came) missing.push_back(q);
        continue;
      }
      // The rank may have sent or received the message before it left: give the message a moment to arrive.
      if (state.left && partner >= 0 && now - channel.left_seen[at] < kLastWords) continue;
      if (state.left) return lost(q, "left the group");
      if (is_dead(q)) return lost(q, "died");
      const auto silent = std::min<std::chrono::nanoseconds>(now - channel.beat_seen[at], waited);
      if (silent > channel.options.heartbeat_timeout) {
        return lost(q, silent_for(silent));
      }
      if (!came) missing.push_back(q);
    }
    return std::nullopt;
  }

  bool heard_all() const {
    for (std::size_t q = 0; q < channel.heard.size(); ++q) {
      const int rank = static_cast<int>(q);
      if (rank != channel.options.rank && (partner < 0 || rank == partner) && !channel.heard[q]) return false;
    }
    return true;
  }

  std::optional<AbortCause> impatience() const {
    const auto& o = channel.options;
    if (waited < o.timeout || (!heard_all() && waited < o.timeout + kHearAll)) return std::nullopt;
    const auto waited_s = duration_cast<seconds>(waited).count();
    if (missing.empty()) {
      return AbortCause{AbortCause::Kind::kTimeout, -1,
                        to_string(Report{.what = fmt::format("{}: not complete after {} s", what, waited_s),
                                         .got = "all ranks have called it, and live",
                                         .expected = {},
                                         .fix = "look at the network, or allow more time (REIGEN_TIMEOUT=seconds)"})};
    }
    return AbortCause{AbortCause::Kind::kTimeout, -1,
                      to_string(absent_ranks(what, waited, missing, last_call(missing.front())))};
  }

  void report() const {
    const auto& o = channel.options;
    if (waited < o.report_after) channel.reported = false;
    const bool known = heard_all() || waited >= o.report_after + kHearAll;
    if (waited < o.report_after || missing.empty() || channel.reported || !known) return;
    channel.reported = true;
    warn_of_absent(what, waited, missing, who(channel, missing.front()), last_call(missing.front()), o.timeout);
  }
};

// Throws the error that ended the group, if the group has ended. Otherwise keeps the StoreThread watching the other
// ranks. Returns true when this rank must look at the states that the StoreThread has read. `record`: null for a
// message.
bool begin_look(Channel& channel, const CallRecord* record, std::chrono::nanoseconds waited) {
  if (channel.failure) throw_cause(*channel.failure);
  const auto now = Clock::now();
  if (channel.verdict) {
    if (now - channel.verdict_since > kVerdictWithin) throw_cause(*channel.verdict);
    return false;
  }
  if (record != nullptr && channel.urgent && now - channel.urgent_since > kNamedWithin) {
    throw_unnamed(channel, *record);
  }
  if (waited < kQuiet && !channel.urgent) return false;
  if (channel.watch_until <= now) {
    channel.heard.assign(channel.heard.size(), false);
    channel.answered = now;
    for (auto& seen : channel.beat_seen) seen = now;
    channel.ring();
  }
  channel.watch_until = now + kWatchFor;
  return waited >= kQuiet;
}

void conclude(Look look) {
  Channel& channel = look.channel;
  // A lost store is an error only if the wait lasts longer than heartbeat_timeout. The process that served the store
  // may have ended in good order, and the call may still complete.
  if (!channel.store_lost.empty() && look.waited > channel.options.heartbeat_timeout) {
    throw PeerLost(0, channel.store_lost);
  }
  const auto now = Clock::now();
  const auto silent = std::min<std::chrono::nanoseconds>(now - channel.answered, look.waited);
  if (silent > channel.options.heartbeat_timeout) {
    throw_cause(look.lost(0, fmt::format("has not answered for {} s, or whoever serves the job's store",
                                         duration_cast<seconds>(silent).count())));
  }
  std::optional<AbortCause> cause = look.loss();
  look.report();
  if (!cause) cause = look.impatience();
  if (!cause) return;
  channel.verdict = std::move(cause);
  channel.verdict_since = now;
  channel.ring();
}

}  // namespace

StoreControl::StoreControl(const GroupOptions& options, Watch watch, const StoreControl* parent)
    : thread_(parent != nullptr ? parent->thread_ : std::make_shared<StoreThread>()),
      channel_(std::make_shared<Channel>(options, [thread = thread_.get()] { thread->ring(); })),
      watch_(watch) {}

// If the thread hangs in a call of a store that does not answer, the thread keeps the channel alive.
StoreControl::~StoreControl() {
  if (started_) thread_->leave(*channel_);
}

std::vector<std::string> StoreControl::join(const std::string& announcement, const std::function<void()>& look) {
  const GroupOptions& o = channel_->options;
  forming_.emplace(o, "/control", kJoinSlice, [this, look](const std::vector<int>& missing) {
    if (look) look();
    require_alive(missing);
  });
  forming_->enter();
  std::vector<std::string> texts = forming_->exchange("rank", place_of_this_process() + "\n" + announcement);
  for (std::size_t q = 0; q < texts.size(); ++q) {
    const std::size_t line = texts[q].find('\n');
    channel_->peers[q] = process_at(texts[q].substr(0, line));
    texts[q].erase(0, line == std::string::npos ? line : line + 1);
  }
  return texts;
}

void StoreControl::agree(const std::string& failure) {
  if (!failure.empty()) forming_->end_for_all(BackendError(failure));
  forming_->complete();
}

void StoreControl::require_alive(const std::vector<int>& ranks) const {
  for (const int q : ranks) {
    if (!has_died(channel_->peers[static_cast<std::size_t>(q)])) continue;
    throw PeerLost(q, died_while_forming(who(*channel_, q), channel_->options));
  }
}

// agree() completes the forming of join(), so this is a forming of its own.
void StoreControl::together(const std::function<void(const std::function<void()>& look)>& body) {
  GroupOptions o = channel_->options;
  o.join_timeout += 2 * kJoinSlice;  // so that a body that waits too long says so itself
  Forming forming(o, "/together", kJoinSlice, [this](const std::vector<int>& missing) { require_alive(missing); });
  std::vector<int> others;
  for (int q = 0; q < o.size; ++q) {
    if (q != o.rank) others.push_back(q);
  }
  auto next = Clock::now() + kJoinSlice;
  try {
    body([&] {
      if (Clock::now() < next) return;
      forming.look(others);
      next = Clock::now() + kJoinSlice;
    });
  } catch (const Error& error) {
    forming.end_for_all(error);
  } catch (const std::exception& error) {
    forming.end_for_all(Error(ExitCode::kBug, error.what()));
  }
  forming.complete();
}

void StoreControl::start() {
  thread_->enter(channel_);
  started_ = true;
}

void StoreControl::called(const Call& call, std::uint64_t sequence) {
  std::lock_guard lock(channel_->mutex);
  RankState& own = channel_->own;
  own.calls = sequence + 1;
  own.records.push_back({sequence, signature_of(call)});
  if (own.records.size() > kRemembered) own.records.pop_front();
}

void StoreControl::look_for_mismatch() {
  std::lock_guard lock(channel_->mutex);
  if (!channel_->urgent) channel_->urgent_since = Clock::now();
  channel_->urgent = true;
  channel_->watch_until = Clock::now() + kWatchFor;
  channel_->ring();
}

void StoreControl::check(const Call& call, std::uint64_t sequence, std::chrono::nanoseconds waited) {
  Channel& channel = *channel_;
  std::lock_guard lock(channel.mutex);
  const CallRecord record{sequence, signature_of(call)};
  if (!begin_look(channel, &record, waited)) return;
  const auto& o = channel.options;
  conclude({.channel = channel,
            .what = fmt::format("[{}] rank {} of {} group \"{}\" #{} {}", name_of(call.kind), o.rank, o.size, o.name,
                                sequence, describe(record.call)),
            .waited = waited,
            .watch = watch_,
            .sequence = sequence});
}

void StoreControl::check_message(int rank, const std::string& what, std::chrono::nanoseconds waited) {
  std::lock_guard lock(channel_->mutex);
  if (!begin_look(*channel_, nullptr, waited)) return;
  conclude({.channel = *channel_, .what = what, .waited = waited, .watch = watch_, .partner = rank});
}

void StoreControl::throw_if_ended() {
  std::lock_guard lock(channel_->mutex);
  if (channel_->failure) throw_cause(*channel_->failure);
}

void StoreControl::leave() {
  std::lock_guard lock(channel_->mutex);
  channel_->own.left = true;
}

void StoreControl::publish_abort(const AbortCause& cause) {
  std::lock_guard lock(channel_->mutex);
  if (channel_->verdict) return;
  channel_->verdict = cause;
  channel_->verdict_since = Clock::now();
  channel_->ring();
}

std::string StoreControl::describe_peer(int rank) const { return who(*channel_, rank); }
const std::string& StoreControl::group() const { return channel_->options.name; }

base::CoreShare StoreControl::core_share() const {
  std::vector<pid_t> here;
  std::size_t place = 0;
  for (std::size_t q = 0; q < channel_->peers.size(); ++q) {
    if (q == static_cast<std::size_t>(channel_->options.rank)) place = here.size();
    if (channel_->peers[q].is_here) here.push_back(channel_->peers[q].seen_as);
  }
  return base::share_cores(here, place);
}

}  // namespace reigen::comm::control
