// Merges the records of several ranks: for each group, which calls each of its ranks has made and completed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flight/read.h"

namespace reigen::flight {

inline constexpr std::int64_t kNever = -1;  // instead of a sequence number, if there was no call

// One rank of a group. Its pointers point into the records that were merged.
struct Member {
  int rank = 0;  // in the job
  int group_rank = 0;
  std::vector<const ReadOperation*> calls = {};        // calls of the whole group, in their order
  std::vector<const ReadOperation*> between_two = {};  // sends and recvs that are unfinished or have failed
  bool forgets = false;                                // its earliest operations are no longer in its record
  std::int64_t completed = kNever;                     // the sequence number of the last call that it completed

  std::int64_t last() const { return calls.empty() ? kNever : static_cast<std::int64_t>(calls.back()->sequence); }
  const ReadOperation* find(std::int64_t sequence) const;  // null if the call is not, or no longer, in the record
};

struct MergedGroup {
  std::string name = {};
  int size = 0;
  std::vector<Member> members = {};  // in the order of their ranks in the group
  std::vector<int> missing = {};     // ranks in the group that have no record
  std::int64_t completed = kNever;   // the sequence number of the last call that every member completed
  std::int64_t last = kNever;        // the sequence number of the last call that any member made

  bool is_at_rest() const;  // whether all ranks have completed the same calls
};

// The groups of all ranks: first the groups of the first rank in the order in which this rank made them, then the other
// groups of the next rank, and so on.
std::vector<MergedGroup> merge(const std::vector<ReadRank>& ranks);

}  // namespace reigen::flight
