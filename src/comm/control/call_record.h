// A call as other ranks see it: what is compared, hashed, named in messages and sent through the store.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>

#include "comm/call.h"

namespace reigen::comm::control {

struct CallRecord {
  std::uint64_t sequence = 0;
  OperationKind kind = OperationKind::kBarrier;
  std::uint64_t count = 0;  // uneven: 0
  CountsDigest counts = {};
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::string tag = {};

  bool operator==(const CallRecord&) const = default;
};

CallRecord record_of(const Call& call, std::uint64_t sequence);

// "all_reduce(100 float32, sum, root 0) \"step 3\"".
std::string describe(const CallRecord& record);
// The first word that differs: "operation", "counts", "count", "type", "reduction", "root" or "tag".
std::string what_differs(const CallRecord& a, const CallRecord& b);
// Equal for equal records, in all likelihood different for others.
std::uint64_t hash_of(const CallRecord& record);

// One line of text, without the newline, and back.
std::string encode(const CallRecord& record);
CallRecord decode(const std::string& line);

}  // namespace reigen::comm::control
