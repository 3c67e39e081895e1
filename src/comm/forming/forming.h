// For the time while a group forms: its ranks wait for each other at the store, and if one rank cannot go on, none
// does.
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

// The part of a store in which the ranks of this group meet: of options.meeting, which belongs to the group that is
// being split, or else of the job's store.
std::shared_ptr<store::Store> meeting_of(const GroupOptions& options, const std::string& part = "");

class Forming {
 public:
  // Called during waits with the missing ranks. Throws an error if something else ends the wait for them.
  using Look = std::function<void(const std::vector<int>& missing)>;
  // `part`: the suffix of this meeting's prefix in the store. `slice`: how often a rank that waits checks which ranks
  // are missing.
  Forming(const GroupOptions& options, const std::string& part, std::chrono::milliseconds slice, Look look = {});

  store::Store& store() { return *store_; }
  const Deadline& deadline() const { return deadline_; }

  // Enters this rank. Throws InvalidArgument if another process has entered with the same rank number.
  void enter();
  // Waits for `key` and returns its value. Ranks that have not set sign/RANK count as missing. Throws Timeout naming
  // the missing ranks, PeerLost for a missing rank that is known to be stopped, or the error with which another rank
  // ended the forming.
  std::string wait_for(const std::string& key, const std::string& sign);
  // Returns on every rank: result[q] = what rank q gives as `own`. `what` names the exchange. Each rank sends the
  // store a fixed number of messages, however many ranks there are. Throws as wait_for().
  std::vector<std::string> exchange(const std::string& what, const std::string& own);
  // Throws if this rank knows of a reason to end the forming. Every wait calls it now and then.
  void check(const std::vector<int>& missing);
  // Reads from the store what the other ranks say, then calls check(). For waits that do not wait for a key.
  void look(const std::vector<int>& missing);
  // Called after a wait that was to end at `until`. If it ended far too late, this process was stopped meanwhile.
  // That time counts against no rank, so the deadline moves.
  void woke(const Deadline& until);
  // Says that this rank has all that it needs. Returns when all ranks have said so.
  void complete();
  // Ends the forming on all ranks. The first error of any rank is thrown here and on all ranks that wait.
  [[noreturn]] void end_for_all(const Error& error);

 private:
  void throw_if_ended();
  // is_of_all: the last rank that sets sign/RANK also sets `key`.
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
  mutable std::map<int, Deadline::Clock::time_point> stopped_;  // ranks that are stopped, and since when this is known
};

}  // namespace reigen::comm
