// Writes a group's operations into the flight record (flight/recorder.h).
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
  // Writes into options.recorder if it is set, else into a record of its own. If it makes a record of its own for a
  // group of one rank, other processes cannot see the record, because they would take the group for a second job of
  // this process.
  explicit FlightLog(const GroupOptions& options);

  std::vector<PastCall> history() const;
  const std::shared_ptr<flight::Recorder>& recorder() const { return recorder_; }

  // Records a call and returns its ticket, which the functions below need.
  std::uint64_t called(const Call& call, std::uint64_t sequence) const;
  // `at_call`: the operation began when it was called, so the record takes the time of called().
  void started(std::uint64_t ticket, bool at_call) const;
  void completed(std::uint64_t ticket) const;
  void failed(std::uint64_t ticket, const std::exception_ptr& error) const;

 private:
  std::shared_ptr<flight::Recorder> recorder_;
  std::uint64_t group_;
};

// Opens a record for rank `rank` of the job `job`. An empty `job` means that this process is the whole job. If
// `inherited` is the descriptor of memory that the launcher made, the record lies in that memory. If `inherited` is -1,
// the record lies in new memory.
std::shared_ptr<flight::Recorder> open_recorder(int rank, int size, const std::string& job = {}, int inherited = -1);

}  // namespace reigen::comm
