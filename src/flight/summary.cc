#include "flight/summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "flight/merge.h"

namespace reigen::flight {

namespace {

// The number of calls that are shown, from the first call at which ranks differ. Later differences are consequences.
constexpr std::int64_t kShownCalls = 3;
constexpr std::size_t kShownPairs = 6;

std::string state_of(const ReadOperation& operation, std::int64_t now) {
  const std::string took = duration(operation.ended - operation.called);
  switch (operation.outcome) {
    case Outcome::kRunning:
      return fmt::format("{}, called {} ago", operation.started != 0 ? "unfinished" : "not begun",
                         duration(now - operation.called));
    case Outcome::kDone: return fmt::format("done {} ago", duration(now - operation.ended));
    case Outcome::kMismatch: return fmt::format("failed after {}: the calls differ", took);
    case Outcome::kPeerLost: return fmt::format("failed after {}: a rank was lost", took);
    case Outcome::kTimeout: return fmt::format("failed after {}: timed out", took);
    case Outcome::kAborted: return fmt::format("failed after {}: the group was ended", took);
    case Outcome::kFailed: break;
  }
  return fmt::format("failed after {}", took);
}

// One line of the summary about a call. The line is for all ranks that made the same call and are in the same state.
struct Row {
  std::string call = {};  // empty if the ranks have not made the call
  Outcome outcome = Outcome::kRunning;
  bool begun = true;
  std::string state = {};
  std::int64_t since = 0;
  std::vector<int> ranks = {};
};

Row row_of(const Member& member, std::int64_t sequence, std::int64_t now) {
  Row row{.ranks = {member.rank}};
  if (const ReadOperation* operation = member.find(sequence); operation != nullptr) {
    row.call = describe(*operation);
    row.outcome = operation->outcome;
    row.begun = operation->started != 0;
    row.state = state_of(*operation, now);
    row.since = operation->called;
    return row;
  }
  if (!member.calls.empty() && member.last() < sequence) {
    const ReadOperation& last = *member.calls.back();
    row.state =
        fmt::format("has not called it; its last: #{} {}, {}", last.sequence, describe(last), state_of(last, now));
  } else if (member.calls.empty() && !member.forgets) {
    row.state = "has not called anything yet";
  } else {
    row.state = "not in its record any more: more than 1,024 operations ago";
  }
  return row;
}

bool same_line(const Row& a, const Row& b) {
  if (a.call.empty() != b.call.empty()) return false;
  return a.call.empty() ? a.state == b.state : a.call == b.call && a.outcome == b.outcome && a.begun == b.begun;
}

std::vector<Row> rows_of(const MergedGroup& group, std::int64_t sequence, std::int64_t now) {
  std::vector<Row> rows;
  for (const Member& member : group.members) {
    Row row = row_of(member, sequence, now);
    const auto like = std::find_if(rows.begin(), rows.end(), [&](const Row& other) { return same_line(row, other); });
    if (like == rows.end()) {
      rows.push_back(std::move(row));
      continue;
    }
    like->ranks.push_back(member.rank);
    if (row.since < like->since) {  // the line shows the time of the rank that waits longest
      like->since = row.since;
      like->state = row.state;
    }
  }
  for (Row& row : rows) std::sort(row.ranks.begin(), row.ranks.end());
  return rows;
}

void add_call(std::vector<std::string>& lines, const MergedGroup& group, std::int64_t sequence, bool first,
              std::int64_t now) {
  std::vector<Row> rows = rows_of(group, sequence, now);
  // Ranks that have not made a call are shown at the first call only.
  if (!first) std::erase_if(rows, [](const Row& row) { return row.call.empty(); });
  std::size_t widest_ranks = 0;
  std::size_t widest_call = 0;
  for (const Row& row : rows) {
    widest_ranks = std::max(widest_ranks, rank_list(row.ranks).size());
    widest_call = std::max(widest_call, row.call.size());
  }
  std::string number = fmt::format("#{}", sequence);
  for (const Row& row : rows) {
    const std::string call = row.call.empty() ? std::string() : fmt::format("{:<{}}  ", row.call, widest_call);
    lines.push_back(fmt::format("    {:<6} {:<{}}  {}{}", number, rank_list(row.ranks), widest_ranks, call, row.state));
    number.clear();
  }
}

// Returns a text such as "all completed #19 all_reduce(4 float32, sum), 3 ms ago".
std::string common_progress(const MergedGroup& group, std::int64_t now) {
  if (group.completed == kNever) return "no call that all have completed";
  std::int64_t latest = 0;
  std::string call;
  for (const Member& member : group.members) {
    const ReadOperation* operation = member.find(group.completed);
    if (operation == nullptr) continue;
    call = describe(*operation);
    latest = std::max(latest, operation->ended);
  }
  if (call.empty()) return fmt::format("all completed #{}, long ago", group.completed);
  return fmt::format("all completed #{} {}, {} ago", group.completed, call, duration(now - latest));
}

std::string title_of(const MergedGroup& group, std::int64_t now) {
  std::vector<int> ranks;
  for (const Member& member : group.members) ranks.push_back(member.rank);
  std::sort(ranks.begin(), ranks.end());
  const bool whole = ranks.size() == static_cast<std::size_t>(group.size) && ranks.back() == group.size - 1;
  std::string who = base::counted(group.size, "rank");
  if (!whole && group.missing.empty()) who = rank_list(ranks);
  if (!group.missing.empty()) who += fmt::format(" ({} without a record)", group.missing.size());
  return fmt::format("  group \"{}\", {}: {}", group.name, who, common_progress(group, now));
}

void add_between_two(std::vector<std::string>& lines, const MergedGroup& group, std::int64_t now) {
  std::size_t shown = 0;
  std::size_t more = 0;
  for (const Member& member : group.members) {
    for (const ReadOperation* operation : member.between_two) {
      if (++shown > kShownPairs) {
        ++more;
        continue;
      }
      lines.push_back(fmt::format("    rank {}  {}  {}", member.rank, describe(*operation), state_of(*operation, now)));
    }
  }
  if (more > 0) lines.push_back(fmt::format("    and {} more between two ranks", more));
}

void add_group(std::vector<std::string>& lines, const MergedGroup& group, std::int64_t now) {
  lines.push_back(title_of(group, now));
  const std::int64_t first = group.completed + 1;
  const std::int64_t shown = std::min(group.last, group.completed + kShownCalls);
  for (std::int64_t sequence = first; sequence <= shown; ++sequence) {
    add_call(lines, group, sequence, sequence == first, now);
  }
  if (group.last > shown) {
    std::vector<int> ranks;
    for (const Member& member : group.members) {
      if (member.last() > shown) ranks.push_back(member.rank);
    }
    std::sort(ranks.begin(), ranks.end());
    lines.push_back(fmt::format("    up to #{} on {}", group.last, rank_list(ranks)));
  }
  add_between_two(lines, group, now);
}

// Whether the summary shows the group. A group of one rank waits for no other rank, and a group without calls has
// nothing to show.
bool says_something(const MergedGroup& group) {
  if (group.size == 1) return !group.is_at_rest();
  return group.last != kNever || !group.is_at_rest();
}

}  // namespace

std::string describe(const ReadOperation& operation) {
  std::string text = operation.kind.empty() ? "?" : operation.kind;
  if (!operation.type.empty()) {
    text += fmt::format("({} {}", operation.count, operation.type);
    if (!operation.reduction.empty()) text += ", " + operation.reduction;
    if (operation.root != kNoRoot)
      text += fmt::format(", {} {}", operation.between_two ? "other" : "root", operation.root);
    text += ")";
  }
  if (!operation.tag.empty()) text += " \"" + operation.tag + "\"";
  return text;
}

std::string duration(std::int64_t nanoseconds) {
  const double seconds = static_cast<double>(std::max<std::int64_t>(nanoseconds, 0)) * 1e-9;
  if (seconds < 0.001) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 100) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 7200) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (begin > 0) text += ", ";
    text += end - begin > 2 ? fmt::format("{}-{}", ranks[begin], ranks[end - 1]) : fmt::format("{}", ranks[begin]);
    begin = end - begin > 2 ? end : begin + 1;
  }
  return text;
}

bool all_agree(const std::vector<ReadRank>& ranks) {
  if (std::any_of(ranks.begin(), ranks.end(), [](const ReadRank& rank) { return rank.pid == 0; })) return false;
  const std::vector<MergedGroup> groups = merge(ranks);
  return std::all_of(groups.begin(), groups.end(), [](const MergedGroup& group) { return group.is_at_rest(); });
}

std::string summary(const std::vector<ReadRank>& ranks, std::int64_t now, std::size_t max_lines) {
  std::vector<MergedGroup> groups = merge(ranks);
  std::erase_if(groups, [](const MergedGroup& group) { return !says_something(group); });
  if (groups.empty()) return {};
  std::stable_sort(groups.begin(), groups.end(),
                   [](const MergedGroup& a, const MergedGroup& b) { return !a.is_at_rest() && b.is_at_rest(); });
  std::vector<std::string> lines;
  std::vector<int> silent;
  for (const ReadRank& rank : ranks) {
    if (rank.pid == 0) silent.push_back(rank.rank);
  }
  if (!silent.empty())
    lines.push_back(fmt::format("  {}: nothing recorded, reigen::init() was not called", rank_list(silent)));
  for (const MergedGroup& group : groups) add_group(lines, group, now);
  std::string text;
  const std::size_t shown = lines.size() > max_lines ? max_lines - 1 : lines.size();
  for (std::size_t i = 0; i < shown; ++i) text += lines[i] + "\n";
  if (shown < lines.size()) text += fmt::format("  ... {} more lines\n", lines.size() - shown);
  return text;
}

}  // namespace reigen::flight
