// The records of several ranks side by side: for each group, how far all of its ranks are, and where they differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flight/read.h"

namespace reigen::flight {

inline constexpr std::int64_t kNever = -1;  // before sequence 0

// One rank of a group. Points into the records that were merged.
struct Member {
  int rank = 0;  // in the job
  int group_rank = 0;
  std::vector<const ReadOperation*> calls = {};        // of operations of the whole group, in their order
  std::vector<const ReadOperation*> between_two = {};  // those that have not ended well
  bool forgets = false;                                // earlier operations have left its record
  std::int64_t completed = kNever;                     // the last sequence it completed

  std::int64_t last() const { return calls.empty() ? kNever : static_cast<std::int64_t>(calls.back()->sequence); }
  const ReadOperation* find(std::int64_t sequence) const;  // null: not called, or forgotten
};

struct MergedGroup {
  std::string name = {};
  int size = 0;
  std::vector<Member> members = {};  // in the order of their rank in the group
  std::vector<int> missing = {};     // ranks in the group of which there is no record
  std::int64_t completed = kNever;   // the last sequence that every member completed
  std::int64_t last = kNever;        // the last sequence that any member called

  bool is_at_rest() const;  // all ranks have completed the same calls
};

// Groups in the order in which the first rank that knows them made them.
std::vector<MergedGroup> merge(const std::vector<ReadRank>& ranks);

}  // namespace reigen::flight
