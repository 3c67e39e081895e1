// What a rank asked for: one call of a Communicator's function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "reigen/comm/types.h"

namespace reigen::comm {

enum class OperationKind : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kBarrier,
};

const char* name_of(OperationKind kind);
bool reduces(OperationKind kind);
bool has_root(OperationKind kind);

struct Call {
  OperationKind kind = OperationKind::kBarrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements of one block: what one rank gives to, or gets from, one other
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::string tag = {};

  std::size_t bytes() const { return count * size_of(type); }
};

// Blocks of `count` elements that a rank reads from its input and writes to its output; 0: the pointer may be null.
struct Extent {
  std::size_t input = 0;
  std::size_t output = 0;
};

Extent extent_of(const Call& call, int rank, int size);

// Throws InvalidArgument: null pointers, buffers that overlap in another way than "in place", a root outside the group,
// a count that overflows, a reduction that the type does not have.
void check_call(const Call& call, int rank, int size);

}  // namespace reigen::comm
