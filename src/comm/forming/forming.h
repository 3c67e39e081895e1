// Lets the ranks of a group wait for each other at the store while the group forms. If one rank cannot go on, the
// forming ends on all ranks.
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

// Returns the part of a store through which the ranks of this group find each other. The store is options.meeting if
// that is set: the group that is being split made it. Otherwise it is options.store, the job's store.
std::shared_ptr<store::Store> meeting_of(const GroupOptions& options, const std::string& part = "");

class Forming {
 public:
  // Called during waits, with the ranks that are missing. Throws an error if this rank must not wait for them any
  // longer.
  using Look = std::function<void(const std::vector<int>& missing)>;
  // `part`: a text that is appended to the prefix of this group's keys in the store. `slice`: the time after which a
  // rank that waits checks again which ranks are missing.
  Forming(const GroupOptions& options, const std::string& part, std::chrono::milliseconds slice, Look look = {});

  store::Store& store() { return *store_; }
  const Deadline& deadline() const { return deadline_; }

  // Registers this rank in the store. Throws InvalidArgument if another process has registered with the same number.
  void enter();
  // Waits for `key` and returns its value. Before this, each rank sets a key of its own: the text `sign`, followed by
  // "/" and the rank's number. A rank whose key is not set counts as missing. Throws Timeout naming the missing ranks,
  // PeerLost for a missing rank that is known to be stopped, or the error with which another rank ended the forming.
  std::string wait_for(const std::string& key, const std::string& sign);
  // Gives every rank a text of each rank: result[q] is the text that rank q passed as `own`. `what` names the exchange.
  // Each rank sends the store a fixed number of messages, however many ranks there are. Throws as wait_for().
  std::vector<std::string> exchange(const std::string& what, const std::string& own);
  // Throws if another rank has ended the forming, if while_forming() or the Look throws, or if a missing rank is
  // stopped. Every wait calls check() now and then.
  void check(const std::vector<int>& missing);
  // Reads the store once, then calls check(). If the store is a RoundStore, the read exchanges messages with the other
  // ranks, so that check() finds what they have written. A rank calls look() while it waits for something other than a
  // key.
  void look(const std::vector<int>& missing);
  // Called after a wait that was to end at `until`. If the wait ended far too late, this process was stopped meanwhile.
  // The lost time counts against no rank, so woke() moves the deadline.
  void woke(const Deadline& until);
  // Announces that this rank has all that it needs for the group. Returns when all ranks have announced this.
  void complete();
  // Ends the forming on all ranks. The first error of any rank is thrown here and on all ranks that wait.
  [[noreturn]] void end_for_all(const Error& error);

 private:
  void throw_if_ended();
  // `is_of_all`: the last rank that sets its own key (see wait_for()) also sets `key`.
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
  mutable std::map<int, Deadline::Clock::time_point> stopped_;  // stopped ranks, and when each was first seen stopped
};

}  // namespace reigen::comm
