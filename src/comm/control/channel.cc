#include "comm/control/channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"

namespace reigen::comm::control {

namespace {

using namespace std::chrono_literals;

constexpr auto kIdle = 500ms;    // interval between two accesses to the store while this rank does not wait
constexpr auto kAnswer = 100ms;  // interval for two seconds after a rank has called for attention (store_control.h)
constexpr auto kWatch = 50ms;    // shortest interval while this rank waits
constexpr auto kHurry = 5ms;     // interval if the ranks made different calls, to find these soon
constexpr auto kAskAgain = 1s;   // a waiting rank calls for attention this often
// All ranks may wait at the same time, and each of them then reads the states of all ranks. The store needs about
// kPairCost for each pair of ranks, so the interval of waiting ranks grows with the number of pairs, up to kWatchMost.
constexpr auto kPairCost = 20us;
constexpr auto kWatchMost = 5s;

}  // namespace

Channel::Channel(const GroupOptions& group, std::function<void()> call)
    : options(group),
      store(store::make_prefix_store(group.store, "group/" + group.name)),
      peers(static_cast<std::size_t>(group.size)),
      bell(std::move(call)),
      states(static_cast<std::size_t>(group.size)),
      beat_seen(static_cast<std::size_t>(group.size), Clock::now()),
      left_seen(static_cast<std::size_t>(group.size)),
      heard(static_cast<std::size_t>(group.size), false),
      answered(Clock::now()),
      died_at(static_cast<std::size_t>(group.size)) {}

std::chrono::nanoseconds Channel::interval(bool watching, bool hurry, Clock::time_point now) const {
  if (hurry) return kHurry;
  if (watching) {
    const auto pairs = static_cast<std::int64_t>(options.size) * options.size;
    return std::clamp<std::chrono::nanoseconds>(pairs * kPairCost, kWatch, kWatchMost);
  }
  return now < answer_until_ ? kAnswer : kIdle;
}

Clock::time_point Channel::due() {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex);
  const bool watches = watch_until > now;
  if ((verdict && !failure && store_lost.empty()) || (watches && !watched_)) return now;
  return talked_ + interval(watches, urgent, now);
}

void Channel::talk() {
  const auto now = Clock::now();
  {
    const std::lock_guard lock(mutex);
    watched_ = watch_until > now;
  }
  converse();
  talked_ = Clock::now();
}

void Channel::stop() {
  const std::lock_guard lock(mutex);
  stopping = true;
}

bool Channel::is_stopping() {
  const std::lock_guard lock(mutex);
  return stopping;
}

// Talks to the store once. If the store is lost, the group ends only when this rank waits in a call: see conclude() in
// store_control.cc.
void Channel::converse() {
  try {
    const auto now = Clock::now();
    bool watching = false;
    {
      std::lock_guard lock(mutex);
      if (!store_lost.empty()) return;
      watching = watch_until > now;
    }
    write_verdict();
    look_for_attention(watching, now);
    bool left = false;
    {
      std::lock_guard lock(mutex);
      left = own.left && !told_left_;
    }
    if (watching || left || now < answer_until_) write_state();
    if (watching) read_states();
    std::lock_guard lock(mutex);
    answered = Clock::now();
  } catch (const std::exception& error) {
    std::lock_guard lock(mutex);
    store_lost = error.what();
  }
}

void Channel::write_verdict() {
  std::optional<AbortCause> cause;
  {
    std::lock_guard lock(mutex);
    if (!verdict || failure) return;
    cause = verdict;
  }
  const std::string first = store->compare_and_set("abort", std::nullopt, encode(*cause));
  store->add("attention", 1);  // so that ranks that do not wait in this group read the error too
  std::lock_guard lock(mutex);
  failure = decode_cause(first);
}

void Channel::look_for_attention(bool watching, Clock::time_point now) {
  if (watching && now - asked_ > kAskAgain) {
    store->add("attention", 1);
    asked_ = now;
  }
  const std::string value = store->try_get("attention").value_or("");
  if (value == attention_) return;
  attention_ = value;
  answer_until_ = now + 2 * kAskAgain;
  const auto abort = store->try_get("abort");
  std::lock_guard lock(mutex);
  if (abort && !failure) failure = decode_cause(*abort);
}

void Channel::write_state() {
  RankState state;
  {
    std::lock_guard lock(mutex);
    own.beat += 1;
    state = own;
  }
  store->set(fmt::format("state/{}", options.rank), encode(state));
  told_left_ = state.left;
}

void Channel::read_states() {
  std::vector<RankState> seen(static_cast<std::size_t>(options.size));
  std::vector<std::string> keys;
  for (int q = 0; q < options.size; ++q) keys.push_back(fmt::format("state/{}", q));
  const auto texts = store->try_get_all(keys);
  for (std::size_t q = 0; q < texts.size(); ++q) {
    if (texts[q]) seen[q] = decode_state(*texts[q]);
  }
  const auto abort = store->try_get("abort");
  const auto mismatch = find_mismatch(seen, options.name);
  std::lock_guard lock(mutex);
  const auto now = Clock::now();
  for (std::size_t q = 0; q < seen.size(); ++q) {
    if (seen[q].left && !states[q].left) left_seen[q] = now;
    if (seen[q].beat == states[q].beat) continue;
    beat_seen[q] = now;
    heard[q] = true;
  }
  if (abort && !failure) failure = decode_cause(*abort);
  if (mismatch && mismatch_since_ == Clock::time_point()) mismatch_since_ = now;
  // The error should compare another rank with rank 0. So wait up to kAskAgain until rank 0 has written its last calls.
  if (mismatch && !verdict && (mismatch->compared_with == 0 || now - mismatch_since_ > kAskAgain)) {
    verdict = mismatch->cause;
    verdict_since = now;
  }
  states = std::move(seen);
  reads += 1;
}

}  // namespace reigen::comm::control
