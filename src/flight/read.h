// Reads a flight record, also while its rank writes it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "flight/record.h"

namespace reigen::flight {

// Times are ns since 1970. A time of 0 means that the event has not happened.
struct ReadOperation {
  std::uint64_t ticket = 0;
  std::string group = {};  // empty if the group is so old that its name is no longer in the record
  int group_rank = 0;
  int group_size = 0;
  std::uint64_t sequence = 0;
  std::string kind = {};
  std::string type = {};       // empty if the operation has no data type
  std::string reduction = {};  // empty if the operation has no reduction
  int root = kNoRoot;
  bool between_two = false;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::string tag = {};
  std::int64_t called = 0;
  std::int64_t started = 0;
  std::int64_t ended = 0;
  Outcome outcome = Outcome::kRunning;
};

struct ReadGroup {
  std::string name = {};
  int rank = 0;
  int size = 0;
};

struct ReadRank {
  int rank = 0;  // in the job
  int size = 1;
  std::uint64_t job = 0;
  pid_t pid = 0;  // 0 if the rank has not begun to record
  std::string host = {};
  std::vector<ReadGroup> groups = {};          // in the order in which they were made
  std::vector<ReadOperation> operations = {};  // the last 1,024 calls, in their order
};

// Reads a record. Throws DataError if another version of Reigen wrote it.
ReadRank read_record(const Record& record);

std::int64_t time_now();

}  // namespace reigen::flight
