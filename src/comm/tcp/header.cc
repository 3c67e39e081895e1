#include "comm/tcp/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace reigen::comm::tcp {

Header header_of(const Call& call, std::uint64_t sequence) {
  Header header{.kind = call.kind,
                .type = call.type,
                .op = call.op,
                .sequence = sequence,
                .count = is_uneven(call.kind) ? 0 : call.count,
                .counts = digest_of(call),
                .root = call.root};
  std::memcpy(header.tag, call.tag.data(), std::min(call.tag.size(), kTagBytes - 1));
  return header;
}

bool same_call(const Header& a, const Header& b) {
  return a.mark == b.mark && a.sequence == b.sequence && a.count == b.count && a.kind == b.kind && a.type == b.type &&
         a.op == b.op && a.root == b.root && a.counts == b.counts && a.algorithm == b.algorithm &&
         a.segments == b.segments && std::strncmp(a.tag, b.tag, kTagBytes) == 0;
}

std::string what_differs(const Header& a, const Header& b) {
  if (a.kind != b.kind) return "operation";
  if (a.counts != b.counts) return "counts";
  if (a.count != b.count) return "count";
  if (a.type != b.type) return "type";
  if (a.op != b.op) return "reduction";
  if (a.root != b.root) return "root";
  if (a.algorithm != b.algorithm || a.segments != b.segments) return "algorithm (GroupOptions::algorithms, segments)";
  return "tag";
}

std::string describe(const Header& h) {
  std::string text = name_of(h.kind);
  if (h.kind != OperationKind::kBarrier) {
    const bool counted = h.kind != OperationKind::kAllToAllV;  // there every pair has counts of its own
    text += "(";
    if (counted) text += fmt::format("{} ", h.count + h.counts.total);
    text += name_of(h.type) + comm::describe(h.counts);
    if (reduces(h.kind)) text += fmt::format(", {}", name_of(h.op));
    if (has_root(h.kind)) text += fmt::format(", root {}", h.root);
    text += ")";
  }
  if (h.tag[0] != '\0') text += fmt::format(" \"{}\"", h.tag);
  return text;
}

}  // namespace reigen::comm::tcp
