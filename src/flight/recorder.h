// Writes a rank's flight record (record.h). To record a call costs one atomic exchange and two readings of a counter.
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

// The names of the codes that a rank writes. A code is an index into one of these vectors.
struct Vocabulary {
  std::vector<std::string> kinds;
  std::vector<std::string> types;
  std::vector<std::string> reductions;
};

struct Identity {
  int rank = 0;
  int size = 1;
  std::string job = {};  // identity of the job, the same in all its ranks; empty if this process is the whole job
};

struct Operation {
  What what = {};  // without `group` and `has_tag`, which called() sets
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::string_view tag = {};  // at most 47 characters are kept
};

// The value of Header::job for a process that is the whole job.
std::uint64_t job_of_process(pid_t pid);

// Makes the memory of a record, into which no rank has written yet. Throws IoError when the system has no memory.
UniqueFd make_memory(const Identity& identity);

// Thread rule: any thread, several at once.
class Recorder {
 public:
  // The recorder writes into the memory of the descriptor `inherited` if this is a record that no other living process
  // writes, else into new memory that other processes can find. If the system gives no such memory, the recorder writes
  // into ordinary memory of this process, and open() logs a warning.
  static std::shared_ptr<Recorder> open(const Identity& identity, const Vocabulary& vocabulary, int inherited = -1);
  // The recorder writes into memory that no other process can find. For groups without ranks in other processes.
  static std::shared_ptr<Recorder> open_unseen(const Identity& identity, const Vocabulary& vocabulary);
  ~Recorder();
  Recorder(const Recorder&) = delete;  // owns a mapping
  Recorder& operator=(const Recorder&) = delete;

  // Writes name, rank and size of a group into the record. Returns the group's number, which called() needs.
  std::uint64_t join(std::string_view group, int rank, int size);

  // Records a call and returns its ticket, for started() and ended(). `group`: the number from join().
  std::uint64_t called(std::uint64_t group, const Operation& operation);
  // Records that the operation began. `at_call`: the operation began when it was called, so the clock is not read
  // again.
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
