// The properties of a call that other ranks compare with their own call. Ranks compare signatures, print them in
// errors, hash them and send them through the store. Every backend compares the properties that a signature contains. A
// backend that keeps these properties in a form of its own makes signatures only when two calls differ.
// Thread rule: values, freely copied between threads.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "comm/call/call.h"
#include "comm/call/tag.h"

namespace reigen::comm {

struct CallSignature {
  std::uint64_t count = 0;  // elements of one block; 0 if blocks may have different sizes
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

// A line break in the tag becomes a space, because encode() makes one line of text.
CallSignature signature_of(const Call& call);

// The call as text for users: "all_reduce(100 float32, sum) \"step 3\"".
std::string describe(const CallSignature& call);
// Names the first property that differs: "operation", "counts", "count", "type", "reduction", "root" or "tag". Empty if
// the signatures are equal.
std::string what_differs(const CallSignature& a, const CallSignature& b);
// The hash is equal for equal calls with equal sequence numbers. Otherwise it is almost certainly different.
std::uint64_t hash_of(const CallSignature& call, std::uint64_t sequence);

// Encodes a signature as one line of text without the newline, and decodes it.
std::string encode(const CallSignature& call);
CallSignature decode_signature(const std::string& line);

}  // namespace reigen::comm
