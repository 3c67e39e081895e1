#include "flight/merge.h"

#include <algorithm>

namespace reigen::flight {

namespace {

Member member_of(const ReadRank& rank, const ReadGroup& group) {
  Member member{.rank = rank.rank, .group_rank = group.rank};
  for (const ReadOperation& operation : rank.operations) {
    if (operation.group != group.name) continue;
    if (!operation.between_two) {
      member.calls.push_back(&operation);
    } else if (operation.outcome != Outcome::kDone) {
      member.between_two.push_back(&operation);
    }
  }
  std::stable_sort(member.calls.begin(), member.calls.end(),
                   [](const ReadOperation* a, const ReadOperation* b) { return a->sequence < b->sequence; });
  // Calls complete in their order, so the calls before the oldest one in the record have completed.
  if (!member.calls.empty()) member.completed = static_cast<std::int64_t>(member.calls.front()->sequence) - 1;
  for (const ReadOperation* call : member.calls) {
    if (call->outcome == Outcome::kDone) member.completed = static_cast<std::int64_t>(call->sequence);
  }
  member.forgets = !rank.operations.empty() && rank.operations.front().ticket > 0;
  return member;
}

void add_member(std::vector<MergedGroup>& groups, const ReadRank& rank, const ReadGroup& group) {
  auto found = std::find_if(groups.begin(), groups.end(),
                            [&](const MergedGroup& g) { return g.name == group.name && g.size == group.size; });
  if (found == groups.end()) found = groups.insert(groups.end(), {.name = group.name, .size = group.size});
  const bool known = std::any_of(found->members.begin(), found->members.end(),
                                 [&](const Member& member) { return member.group_rank == group.rank; });
  if (!known) found->members.push_back(member_of(rank, group));
}

void finish(MergedGroup& group) {
  std::sort(group.members.begin(), group.members.end(),
            [](const Member& a, const Member& b) { return a.group_rank < b.group_rank; });
  for (int q = 0; q < group.size; ++q) {
    if (std::none_of(group.members.begin(), group.members.end(), [&](const Member& m) { return m.group_rank == q; })) {
      group.missing.push_back(q);
    }
  }
  bool first = true;
  for (const Member& member : group.members) {
    group.last = std::max(group.last, member.last());
    if (member.calls.empty() && member.forgets) continue;  // the record does not show which calls are completed
    group.completed = first ? member.completed : std::min(group.completed, member.completed);
    first = false;
  }
}

}  // namespace

const ReadOperation* Member::find(std::int64_t sequence) const {
  const auto at =
      std::lower_bound(calls.begin(), calls.end(), sequence, [](const ReadOperation* call, std::int64_t wanted) {
        return static_cast<std::int64_t>(call->sequence) < wanted;
      });
  return at != calls.end() && static_cast<std::int64_t>((*at)->sequence) == sequence ? *at : nullptr;
}

bool MergedGroup::is_at_rest() const {
  const bool waits =
      std::any_of(members.begin(), members.end(), [](const Member& m) { return !m.between_two.empty(); });
  return completed == last && !waits;
}

std::vector<MergedGroup> merge(const std::vector<ReadRank>& ranks) {
  std::vector<MergedGroup> groups;
  for (const ReadRank& rank : ranks) {
    for (const ReadGroup& group : rank.groups) add_member(groups, rank, group);
  }
  for (MergedGroup& group : groups) finish(group);
  return groups;
}

}  // namespace reigen::flight
