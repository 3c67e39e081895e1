// While a group forms: ranks wait for each other at the store, and when one cannot go on nobody does.
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reigen/base/deadline.h"
#include "reigen/base/error.h"
#include "reigen/comm/options.h"

namespace reigen::comm {

// The part of a store in which the ranks of this group meet: the job's, or the one of the group that is split.
std::shared_ptr<store::Store> meeting_of(const GroupOptions& options, const std::string& part = "");

class Forming {
 public:
  // Throws what else ends the wait for these ranks.
  using Look = std::function<void(const std::vector<int>& missing)>;
  // `part`: of the group's place in the store; `slice`: so often those that wait look at who is missing.
  Forming(const GroupOptions& options, const std::string& part, std::chrono::milliseconds slice, Look look = {});

  store::Store& store() { return *store_; }
  const Deadline& deadline() const { return deadline_; }

  // Throws InvalidArgument when another rank has this number.
  void enter();
  // The value of `key`, for which ranks that have not set sign/RANK keep the others waiting. Throws Timeout naming
  // these, PeerLost for one that is known to be stopped, or what another rank ended it with.
  std::string wait_for(const std::string& key, const std::string& sign);
  // result[q] = what rank q gives as `own`. `what` names the exchange. Each rank sends the store a fixed number of
  // messages, however many ranks there are. Throws as wait_for().
  std::vector<std::string> exchange(const std::string& what, const std::string& own);
  // Throws when this rank knows of a reason to end the forming. Every wait calls it now and then.
  void check(const std::vector<int>& missing);
  // Hears of the other ranks first, then check(): for waits that are not for a key.
  void look(const std::vector<int>& missing);
  // A wait that was to end at `until` has ended. Where that is far too late this process was stopped, and that time is
  // held against nobody: the deadline moves.
  void woke(const Deadline& until);
  // This rank has what it needs: returns when all have.
  void complete();
  // The first error stands and is thrown here, and by all that wait.
  [[noreturn]] void end_for_all(const Error& error);

 private:
  void throw_if_ended();
  // is_of_all: the key is set when all ranks have set sign/RANK, by the last of them.
  std::string wait(const std::string& key, const std::string& sign, bool is_of_all);
  std::vector<std::string> keys_of(const std::string& what) const;
  std::vector<int> missing_of(const std::string& sign);
  void check_not_stopped(const std::vector<int>& missing) const;

  const GroupOptions& options_;
  const std::chrono::milliseconds slice_;
  const Look look_;
  const std::shared_ptr<store::Store> store_;
  Deadline deadline_;
  Deadline::Clock::time_point since_ = Deadline::Clock::now();
  mutable std::map<int, Deadline::Clock::time_point> stopped_;  // ranks that are, since when that is known
};

}  // namespace reigen::comm
