// What travels before the data of a call: what was called, for the others to compare.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/call.h"

namespace reigen::comm::tcp {

inline constexpr std::uint32_t kProtocolVersion = 4;
inline constexpr std::uint32_t kHeaderMark = 0x52474e31;  // also tells another byte order from ours
inline constexpr std::size_t kTagBytes = 48;

struct Header {
  std::uint32_t mark = kHeaderMark;
  OperationKind kind = OperationKind::kBarrier;
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  std::uint8_t algorithm = 0;  // its place in schedule::algorithms(kind)
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;  // uneven: 0
  CountsDigest counts = {};
  std::uint64_t gives = 0;  // all_to_all_v: elements to the rank that reads this
  std::uint64_t takes = 0;  // ... and from it
  std::int32_t root = 0;
  std::uint32_t segments = 1;
  char tag[kTagBytes] = {};
};
static_assert(sizeof(Header) == 144, "the same on every machine");

// Without `gives` and `takes`, which are between two.
Header header_of(const Call& call, std::uint64_t sequence);
bool same_call(const Header& a, const Header& b);
std::string what_differs(const Header& a, const Header& b);

// As people call it: "all_reduce(100 float32, sum) \"step 3\"".
std::string describe(const Header& header);

}  // namespace reigen::comm::tcp
