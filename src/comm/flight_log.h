// What a group's operations tell the flight recorder (flight/recorder.h).
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/call/call.h"
#include "reigen/comm/history.h"

namespace reigen::flight {
class Recorder;
}

namespace reigen::comm {

struct GroupOptions;

// Copies write into the same record. Thread rule: any thread.
class FlightLog {
 public:
  // Into the options' recorder, or into one of its own: of a group of one such that other processes do not find, for
  // whom it would be a job beside the one that this process is in.
  explicit FlightLog(const GroupOptions& options);

  std::vector<PastCall> history() const;
  const std::shared_ptr<flight::Recorder>& recorder() const { return recorder_; }

  // The ticket of the call, for the others.
  std::uint64_t called(const Call& call, std::uint64_t sequence) const;
  void started(std::uint64_t ticket, bool at_call) const;
  void completed(std::uint64_t ticket) const;
  void failed(std::uint64_t ticket, const std::exception_ptr& error) const;

 private:
  std::shared_ptr<flight::Recorder> recorder_;
  std::uint64_t group_;
};

// A record for rank `rank` of the job `job` (empty: this process is the whole job), in the launcher's memory behind the
// descriptor `inherited` or (-1) in memory of its own.
std::shared_ptr<flight::Recorder> open_recorder(int rank, int size, const std::string& job = {}, int inherited = -1);

}  // namespace reigen::comm
