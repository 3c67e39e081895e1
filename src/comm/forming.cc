#include "comm/forming.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error_record.h"
#include "base/host_name.h"
#include "base/process_state.h"
#include "comm/rank_reports.h"

namespace reigen::comm {

namespace {

constexpr auto kStoodStill = std::chrono::seconds(3);    // a wait that ends so late: this process did not run
constexpr auto kStaysStopped = std::chrono::seconds(2);  // then a rank is stopped and will not just go on

}  // namespace

Forming::Forming(const GroupOptions& options, const std::string& part, std::chrono::milliseconds slice, Look look)
    : options_(options),
      slice_(slice),
      look_(std::move(look)),
      store_(store::make_prefix_store(options.store, "group/" + options.name + part)),
      deadline_(Deadline::after(options.join_timeout)) {}

void Forming::enter() {
  if (store_->add(fmt::format("joined/{}", options_.rank), 1) != 1) throw InvalidArgument(joined_twice(options_));
  throw_if_ended();  // the others may have given up before this rank came
}

std::string Forming::wait_for(const std::string& key, const std::string& sign) {
  for (;;) {
    const Deadline until = Deadline::after(deadline_.remaining(slice_));
    try {
      return store_->get(key, until);
    } catch (const Timeout&) {
      woke(until);
      std::vector<int> missing;
      for (int q = 0; q < options_.size; ++q) {
        if (!store_->try_get(fmt::format("{}/{}", sign, q))) missing.push_back(q);
      }
      check(missing);
      if (missing.empty()) {
        // Who came last died before it could say that all are there; the first call will tell.
        if (key == "complete") store_->compare_and_set(key, std::nullopt, "");
      } else if (deadline_.expired()) {
        end_for_all(Timeout(incomplete_group(options_, missing)));
      }
    }
  }
}

void Forming::woke(const Deadline& until) {
  const auto late = Deadline::Clock::now() - until.when();
  if (late < kStoodStill) return;
  if (!deadline_.is_never()) deadline_ = Deadline::at(deadline_.when() + late);
  since_ += late;
  stopped_.clear();
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

// A launcher of ours tells the numbers of its processes; those of other machines are not found here. It knows the ranks
// of the job, not those of groups that were split off ("world/0.1") or are parts ("world.machine1").
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
    // A suspended job goes on one process after the other.
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

void Forming::complete() {
  store_->set(fmt::format("opened/{}", options_.rank), "");
  if (store_->add("opened", 1) == options_.size) store_->compare_and_set("complete", std::nullopt, "");
  const std::string verdict = wait_for("complete", "opened");
  if (!verdict.empty()) base::raise(base::decode_error(verdict));
}

void Forming::throw_if_ended() {
  if (const auto verdict = store_->try_get("complete"); verdict && !verdict->empty())
    base::raise(base::decode_error(*verdict));
}

void Forming::end_for_all(const Error& error) {
  const std::string own = base::encode(base::record_of(error));
  const std::string verdict = store_->compare_and_set("complete", std::nullopt, own);
  base::raise(base::decode_error(verdict.empty() ? own : verdict));  // empty: all were there before
}

void in_numbers_of(const std::vector<int>& ranks, const std::function<void()>& action) {
  try {
    action();
  } catch (const PeerLost& error) {
    const auto found = std::find(ranks.begin(), ranks.end(), error.rank());
    throw PeerLost(found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin()), error.what());
  }
}

}  // namespace reigen::comm
