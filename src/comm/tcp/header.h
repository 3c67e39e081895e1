// The header that a rank sends before the data of a call. It describes the call, so that other ranks can compare it
// with their own call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/call/signature.h"

namespace reigen::comm::tcp {

inline constexpr std::uint32_t kProtocolVersion = 6;
inline constexpr std::uint32_t kHeaderMark = 0x52474e31;  // arrives changed if the other side has another byte order

struct Header {
  std::uint32_t mark = kHeaderMark;
  std::uint32_t segments = 1;   // number of pieces into which the algorithm cuts its data
  std::uint64_t algorithm = 0;  // the algorithm's index in schedule::algorithms(kind)
  std::uint64_t sequence = 0;
  std::uint64_t gives = 0;  // all_to_all_v: elements to the rank that gets this header
  std::uint64_t takes = 0;  // all_to_all_v: elements from the rank that gets this header
  CallSignature call = {};
};
static_assert(sizeof(Header) == 152, "the same on every machine");

// header_of() does not set `gives` and `takes`, and same_call() does not compare them: they concern two ranks only.
Header header_of(const Call& call, std::uint64_t sequence);
bool same_call(const Header& a, const Header& b);
std::string what_differs(const Header& a, const Header& b);

}  // namespace reigen::comm::tcp
