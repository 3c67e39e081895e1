#include "comm/call/signature.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "base/hash.h"

namespace reigen::comm {

CallSignature signature_of(const Call& call) {
  Tag tag(call.tag);
  tag.replace_line_breaks();
  return {.count = is_uneven(call.kind) ? 0 : call.count,
          .counts = digest_of(call),
          .root = call.root,
          .kind = call.kind,
          .type = call.type,
          .op = call.op,
          .tag = tag};
}

std::string describe(const CallSignature& call) {
  std::string text = name_of(call.kind);
  if (call.kind != OperationKind::kBarrier) {
    const bool counted = call.kind != OperationKind::kAllToAllV;  // all_to_all_v: each pair of ranks has its own counts
    text += "(";
    if (counted) text += fmt::format("{} ", call.count + call.counts.total);
    text += name_of(call.type) + describe(call.counts);
    if (reduces(call.kind)) text += fmt::format(", {}", name_of(call.op));
    if (has_root(call.kind)) text += fmt::format(", root {}", call.root);
    text += ")";
  }
  if (!call.tag.empty()) text += fmt::format(" \"{}\"", call.tag.text());
  return text;
}

std::string what_differs(const CallSignature& a, const CallSignature& b) {
  if (a.kind != b.kind) return "operation";
  if (a.counts != b.counts) return "counts";
  if (a.count != b.count) return "count";
  if (a.type != b.type) return "type";
  if (a.op != b.op) return "reduction";
  if (a.root != b.root) return "root";
  return a.tag == b.tag ? "" : "tag";
}

// The last two lines mix the bits of the hash, so that one changed bit changes bits in all parts of the hash.
std::uint64_t hash_of(const CallSignature& call, std::uint64_t sequence) {
  std::uint64_t hash = base::fnv1a(fmt::format("{} {}", sequence, encode(call)));
  hash = (hash ^ (hash >> 31)) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

std::string encode(const CallSignature& call) {
  std::string counts;
  if (is_uneven(call.kind)) {
    counts = fmt::format("{} {} {} ", call.counts.total, call.counts.hash, fmt::join(call.counts.first, " "));
  }
  return fmt::format("{} {}{} {} {} {} {}", static_cast<int>(call.kind), counts, call.count,
                     static_cast<int>(call.type), static_cast<int>(call.op), call.root, call.tag.text());
}

CallSignature decode_signature(const std::string& line) {
  std::istringstream in(line);
  CallSignature call;
  int kind = 0;
  int type = 0;
  int op = 0;
  in >> kind;
  call.kind = static_cast<OperationKind>(kind);
  if (is_uneven(call.kind)) {
    in >> call.counts.total >> call.counts.hash;
    for (auto& count : call.counts.first) in >> count;
  }
  in >> call.count >> type >> op >> call.root;
  in.get();
  std::string tag;
  std::getline(in, tag);
  call.tag.assign(tag);
  call.type = static_cast<DataType>(type);
  call.op = static_cast<ReduceOp>(op);
  return call;
}

}  // namespace reigen::comm
