// Merges the records of several ranks: for each group, how far each of its ranks is, and where they differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flight/read.h"

namespace reigen::flight {

inline constexpr std::int64_t kNever = -1;  // in place of a call's sequence number: there was no call

// One rank of a group. Its pointers point into the records that were merged.
struct Member {
  int rank = 0;  // in the job
  int group_rank = 0;
  std::vector<const ReadOperation*> calls = {};        // calls of the whole group, in their order
  std::vector<const ReadOperation*> between_two = {};  // sends and recvs that are unfinished or have failed
  bool forgets = false;                                // its earliest operations are no longer in its record
  std::int64_t completed = kNever;                     // the last sequence number that it completed

  std::int64_t last() const { return calls.empty() ? kNever : static_cast<std::int64_t>(calls.back()->sequence); }
  const ReadOperation* find(std::int64_t sequence) const;  // null: not called, or no longer in the record
};

struct MergedGroup {
  std::string name = {};
  int size = 0;
  std::vector<Member> members = {};  // in the order of their ranks in the group
  std::vector<int> missing = {};     // ranks in the group that have no record
  std::int64_t completed = kNever;   // the last sequence number that every member completed
  std::int64_t last = kNever;        // the last sequence number that any member called

  bool is_at_rest() const;  // whether all ranks have completed the same calls
};

// The groups, in the order in which the first rank that knows a group made it.
std::vector<MergedGroup> merge(const std::vector<ReadRank>& ranks);

}  // namespace reigen::flight
