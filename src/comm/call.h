// What a rank asked for: one call of a Communicator's function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "reigen/comm/types.h"

namespace reigen::comm {

enum class OperationKind : std::uint8_t { kAllReduce, kBroadcast, kAllGather, kBarrier };

const char* name_of(OperationKind kind);

struct Call {
  OperationKind kind = OperationKind::kBarrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements of one rank's input
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  std::string tag = {};

  std::size_t bytes() const { return count * size_of(type); }
};

}  // namespace reigen::comm
