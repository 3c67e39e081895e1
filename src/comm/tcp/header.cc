#include "comm/tcp/header.h"

namespace reigen::comm::tcp {

Header header_of(const Call& call, std::uint64_t sequence) {
  return {.sequence = sequence, .call = signature_of(call)};
}

bool same_call(const Header& a, const Header& b) {
  return a.mark == b.mark && a.sequence == b.sequence && a.call == b.call && a.algorithm == b.algorithm &&
         a.segments == b.segments;
}

std::string what_differs(const Header& a, const Header& b) {
  const std::string differs = comm::what_differs(a.call, b.call);
  return differs.empty() ? "algorithm (GroupOptions::algorithms, segments)" : differs;
}

}  // namespace reigen::comm::tcp
