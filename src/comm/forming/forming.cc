#include "comm/forming/forming.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error_record.h"
#include "base/machine/host_name.h"
#include "base/machine/process_state.h"
#include "comm/forming/rank_reports.h"

namespace reigen::comm {

namespace {

constexpr auto kStoodStill = std::chrono::seconds(3);    // this process was stopped if a wait ends this much too late
constexpr auto kStaysStopped = std::chrono::seconds(2);  // a rank counts as stopped if it is stopped for this long

}  // namespace

std::shared_ptr<store::Store> meeting_of(const GroupOptions& options, const std::string& part) {
  return store::make_prefix_store(options.meeting ? options.meeting : options.store, "group/" + options.name + part);
}

Forming::Forming(const GroupOptions& options, const std::string& part, std::chrono::milliseconds slice, Look look)
    : options_(options),
      slice_(slice),
      look_(std::move(look)),
      store_(meeting_of(options, part)),
      deadline_(Deadline::after(options.join_timeout)) {}

void Forming::enter() {
  if (store_->add(fmt::format("joined/{}", options_.rank), 1) != 1) throw InvalidArgument(joined_twice(options_));
  throw_if_ended();  // the other ranks may have given up before this rank came
}

std::string Forming::wait_for(const std::string& key, const std::string& sign) { return wait(key, sign, false); }

std::string Forming::wait(const std::string& key, const std::string& sign, bool is_of_all) {
  for (;;) {
    const Deadline until = Deadline::after(deadline_.remaining(slice_));
    try {
      return store_->get(key, until);
    } catch (const Timeout&) {
      woke(until);
      const std::vector<int> missing = missing_of(sign);
      check(missing);
      if (!missing.empty() && deadline_.expired()) end_for_all(Timeout(incomplete_group(options_, missing)));
      // All ranks have set their own keys, but nobody has set `key`. The last rank died before that, or was started
      // with another number of ranks. So this rank sets `key`.
      if (is_of_all && missing.empty()) store_->compare_and_set(key, std::nullopt, "");
    }
  }
}

std::vector<std::string> Forming::keys_of(const std::string& what) const {
  std::vector<std::string> keys;
  for (int q = 0; q < options_.size; ++q) keys.push_back(fmt::format("{}/{}", what, q));
  return keys;
}

std::vector<std::string> Forming::exchange(const std::string& what, const std::string& own) {
  const std::vector<std::string> keys = keys_of(what);
  store_->set(keys[static_cast<std::size_t>(options_.rank)], own);
  // The last rank sets one key, which says that all ranks are there. So a rank waits only for this key, and not for a
  // key of each other rank.
  if (store_->add(what + "s", 1) == options_.size) store_->set("all " + what + "s", "");
  wait("all " + what + "s", what, true);
  std::vector<std::string> texts;
  for (std::optional<std::string>& text : store_->try_get_all(keys)) {
    // A rank that was started with a smaller number of ranks sets the key "all ..." too early, so a text may still be
    // missing.
    texts.push_back(text ? std::move(*text) : wait_for(keys[texts.size()], what));
  }
  return texts;
}

void Forming::woke(const Deadline& until) {
  const auto late = Deadline::Clock::now() - until.when();
  if (late < kStoodStill) return;
  if (!deadline_.is_never()) deadline_ = Deadline::at(deadline_.when() + late);
  since_ += late;
  stopped_.clear();
}

void Forming::look(const std::vector<int>& missing) {
  try {
    store_->get("complete", Deadline::after(std::chrono::nanoseconds(0)));
  } catch (const Timeout&) {
  }
  check(missing);
}

void Forming::check(const std::vector<int>& missing) {
  throw_if_ended();
  if (options_.while_forming) options_.while_forming();
  try {
    if (look_) look_(missing);
    if (Deadline::Clock::now() - since_ >= options_.heartbeat_timeout) check_not_stopped(missing);
  } catch (const PeerLost& error) {
    end_for_all(error);
  }
}

// Throws PeerLost if a missing rank is stopped (SIGSTOP). Reigen's launcher writes the process ids of its ranks into
// the store. A process id of another machine is not found on this machine. The ids are stored by the rank's number in
// the job. So the check skips groups that were split off ("world/0.1") or that are a part of another group
// ("world.machine1").
void Forming::check_not_stopped(const std::vector<int>& missing) const {
  if (options_.name.find_first_of("/.") != std::string::npos) return;
  if (options_.store->try_get("process/count") != std::to_string(options_.size)) return;
  for (const int q : missing) {
    const auto text = options_.store->try_get(fmt::format("process/{}", q));
    const pid_t pid = text ? static_cast<pid_t>(std::stol(*text)) : 0;
    if (pid == 0 || base::find_stopped(pid) == 0) {
      stopped_.erase(q);
      continue;
    }
    // When a suspended job is resumed, its processes go on one after the other. So a rank counts as stopped only after
    // it has been stopped for a while.
    const auto now = Deadline::Clock::now();
    if (now - stopped_.try_emplace(q, now).first->second < kStaysStopped) continue;
    const auto quiet = std::chrono::duration_cast<std::chrono::seconds>(options_.heartbeat_timeout).count();
    throw PeerLost(q, to_string(Report{.what = fmt::format("rank {} (host {}, pid {}) is stopped (SIGSTOP) and has not "
                                                           "joined group \"{}\"",
                                                           q, base::host_name(), pid, options_.name),
                                       .got = fmt::format("no word of it for {} s", quiet),
                                       .expected = fmt::format("{} ranks", options_.size),
                                       .fix = fmt::format("kill -CONT {} before the others lose patience "
                                                          "(REIGEN_COMM_HEARTBEAT_TIMEOUT=seconds)",
                                                          pid)}));
  }
}

std::vector<int> Forming::missing_of(const std::string& sign) {
  const auto signs = store_->try_get_all(keys_of(sign));
  std::vector<int> missing;
  for (std::size_t q = 0; q < signs.size(); ++q) {
    if (!signs[q]) missing.push_back(static_cast<int>(q));
  }
  return missing;
}

void Forming::complete() {
  store_->set(fmt::format("opened/{}", options_.rank), "");
  if (store_->add("opened", 1) == options_.size) store_->compare_and_set("complete", std::nullopt, "");
  const std::string verdict = wait("complete", "opened", true);
  if (!verdict.empty()) base::raise(base::decode_error(verdict));
}

void Forming::throw_if_ended() {
  if (const auto verdict = store_->try_get("complete"); verdict && !verdict->empty())
    base::raise(base::decode_error(*verdict));
}

void Forming::end_for_all(const Error& error) {
  const std::string own = base::encode(base::record_of(error));
  const std::string verdict = store_->compare_and_set("complete", std::nullopt, own);
  base::raise(base::decode_error(verdict.empty() ? own : verdict));  // `verdict` is empty if the group is complete
}

}  // namespace reigen::comm
