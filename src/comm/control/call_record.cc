#include "comm/control/call_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace reigen::comm::control {

CallRecord record_of(const Call& call, std::uint64_t sequence) {
  CallRecord record{.sequence = sequence,
                    .kind = call.kind,
                    .count = is_uneven(call.kind) ? 0 : call.count,
                    .counts = digest_of(call),
                    .type = call.type,
                    .op = call.op,
                    .root = call.root,
                    .tag = call.tag};
  std::replace(record.tag.begin(), record.tag.end(), '\n', ' ');  // a record is a line
  return record;
}

std::string describe(const CallRecord& record) {
  std::string text = name_of(record.kind);
  if (record.kind != OperationKind::kBarrier) {
    const bool counted = record.kind != OperationKind::kAllToAllV;  // there every pair has counts of its own
    text += "(";
    if (counted) text += fmt::format("{} ", record.count + record.counts.total);
    text += name_of(record.type) + comm::describe(record.counts);
    if (reduces(record.kind)) text += fmt::format(", {}", name_of(record.op));
    if (has_root(record.kind)) text += fmt::format(", root {}", record.root);
    text += ")";
  }
  if (!record.tag.empty()) text += fmt::format(" \"{}\"", record.tag);
  return text;
}

std::string what_differs(const CallRecord& a, const CallRecord& b) {
  if (a.kind != b.kind) return "operation";
  if (a.counts != b.counts) return "counts";
  if (a.count != b.count) return "count";
  if (a.type != b.type) return "type";
  if (a.op != b.op) return "reduction";
  if (a.root != b.root) return "root";
  return "tag";
}

// FNV-1a, then mixed so that one changed bit reaches all others.
std::uint64_t hash_of(const CallRecord& record) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : encode(record)) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  hash = (hash ^ (hash >> 31)) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

std::string encode(const CallRecord& record) {
  std::string counts;
  if (is_uneven(record.kind)) {
    counts = fmt::format("{} {} {} ", record.counts.total, record.counts.hash, fmt::join(record.counts.first, " "));
  }
  return fmt::format("{} {} {}{} {} {} {} {}", record.sequence, static_cast<int>(record.kind), counts, record.count,
                     static_cast<int>(record.type), static_cast<int>(record.op), record.root, record.tag);
}

CallRecord decode(const std::string& line) {
  std::istringstream in(line);
  CallRecord record;
  int kind = 0;
  int type = 0;
  int op = 0;
  in >> record.sequence >> kind;
  record.kind = static_cast<OperationKind>(kind);
  if (is_uneven(record.kind)) {
    in >> record.counts.total >> record.counts.hash;
    for (auto& count : record.counts.first) in >> count;
  }
  in >> record.count >> type >> op >> record.root;
  in.get();
  std::getline(in, record.tag);
  record.type = static_cast<DataType>(type);
  record.op = static_cast<ReduceOp>(op);
  return record;
}

}  // namespace reigen::comm::control
