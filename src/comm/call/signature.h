// A call as other ranks see it: what they compare, name in messages, hash, and send through the store. Every backend
// compares calls by it; one that keeps a call in a layout of its own makes a signature of it when two differ.
// Thread rule: values.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "comm/call/call.h"
#include "comm/call/tag.h"

namespace reigen::comm {

struct CallSignature {
  std::uint64_t count = 0;  // uneven: 0
  CountsDigest counts = {};
  std::int32_t root = 0;
  OperationKind kind = OperationKind::kBarrier;
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  std::uint8_t padding = 0;
  Tag tag = {};

  bool operator==(const CallSignature&) const = default;
};
static_assert(sizeof(CallSignature) == 112 && std::is_trivially_copyable_v<CallSignature>,
              "the same on every machine of a job");

// A line break in the tag becomes a space: a signature is a line of text.
CallSignature signature_of(const Call& call);

// As people call it: "all_reduce(100 float32, sum) \"step 3\"".
std::string describe(const CallSignature& call);
// The first word that differs: "operation", "counts", "count", "type", "reduction", "root" or "tag"; empty: none.
std::string what_differs(const CallSignature& a, const CallSignature& b);
// Equal for equal calls with equal numbers, in all likelihood different for others.
std::uint64_t hash_of(const CallSignature& call, std::uint64_t sequence);

// One line of text, without the newline, and back.
std::string encode(const CallSignature& call);
CallSignature decode_signature(const std::string& line);

}  // namespace reigen::comm
