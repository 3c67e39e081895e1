// Writes a rank's flight record (record.h). A call costs one locked instruction and two readings of a counter.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flight/record.h"
#include "reigen/base/unique_fd.h"

namespace reigen::flight {

// Names of the codes that a rank writes: names[code].
struct Vocabulary {
  std::vector<std::string> kinds;
  std::vector<std::string> types;
  std::vector<std::string> reductions;
};

struct Identity {
  int rank = 0;
  int size = 1;
  std::string job = {};  // of the job, the same in all its ranks; empty: this process is the whole job
};

struct Operation {
  What what = {};  // all but `group` and `has_tag`
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::string_view tag = {};  // at most 47 characters are kept
};

// The job's number in the record of a process that is its own job.
std::uint64_t job_of_process(pid_t pid);

// The memory of a record before its rank has begun to write. Throws IoError when the system has none.
UniqueFd make_memory(const Identity& identity);

// Thread rule: any thread, any number of them.
class Recorder {
 public:
  // Writes into the memory behind `inherited` if that is a record nobody else alive writes, else into memory of its
  // own. Never fails: without memory that others could find it records for nobody and says so in the log.
  static std::shared_ptr<Recorder> open(const Identity& identity, const Vocabulary& vocabulary, int inherited = -1);
  // Into memory that no other process finds: of a group that no other process is in.
  static std::shared_ptr<Recorder> open_unseen(const Identity& identity, const Vocabulary& vocabulary);
  ~Recorder();
  Recorder(const Recorder&) = delete;  // owns a mapping
  Recorder& operator=(const Recorder&) = delete;

  // A place for a group; its number is for called().
  std::uint64_t join(std::string_view group, int rank, int size);

  // The ticket of the call, for the next two. `group` is join()'s number.
  std::uint64_t called(std::uint64_t group, const Operation& operation);
  // `at_call`: it began when it was called, the clock is not read again.
  void started(std::uint64_t ticket, bool at_call);
  void ended(std::uint64_t ticket, Outcome outcome);

  const Record& record() const { return *record_; }  // for readers in this process

 private:
  Recorder(UniqueFd memory, void* mapped);
  void attach(const Vocabulary& vocabulary);
  std::uint64_t ticks() const;

  UniqueFd memory_;
  Record* record_;
  bool counter_ = false;
};

}  // namespace reigen::flight
