#include "comm/call.h"

#include "base/check.h"

namespace reigen::comm {

const char* name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kAllReduce: return "all_reduce";
    case OperationKind::kReduceScatter: return "reduce_scatter";
    case OperationKind::kAllGather: return "all_gather";
    case OperationKind::kBroadcast: return "broadcast";
    case OperationKind::kReduce: return "reduce";
    case OperationKind::kGather: return "gather";
    case OperationKind::kScatter: return "scatter";
    case OperationKind::kAllToAll: return "all_to_all";
    case OperationKind::kBarrier: return "barrier";
  }
  return "?";
}

bool reduces(OperationKind kind) {
  return kind == OperationKind::kAllReduce || kind == OperationKind::kReduceScatter || kind == OperationKind::kReduce;
}

bool has_root(OperationKind kind) {
  return kind == OperationKind::kBroadcast || kind == OperationKind::kReduce || kind == OperationKind::kGather ||
         kind == OperationKind::kScatter;
}

Extent extent_of(const Call& call, int rank, int size) {
  const auto all = static_cast<std::size_t>(size);
  const bool is_root = rank == call.root;
  switch (call.kind) {
    case OperationKind::kAllReduce: return {1, 1};
    case OperationKind::kReduceScatter: return {all, 1};
    case OperationKind::kAllGather: return {1, all};
    case OperationKind::kBroadcast: return {is_root ? 1U : 0U, is_root ? 0U : 1U};
    case OperationKind::kReduce: return {1, is_root ? 1U : 0U};
    case OperationKind::kGather: return {1, is_root ? all : 0};
    case OperationKind::kScatter: return {is_root ? all : 0, 1};
    case OperationKind::kAllToAll: return {all, all};
    case OperationKind::kBarrier: break;
  }
  return {0, 0};
}

namespace {

// Where the smaller buffer lies in the larger one when an operation is in place.
bool is_in_place(const Call& call, const Extent& extent, int rank) {
  const auto* input = static_cast<const std::byte*>(call.input);
  const auto* output = static_cast<const std::byte*>(call.output);
  const std::size_t own = static_cast<std::size_t>(rank) * call.bytes();
  if (call.kind == OperationKind::kAllToAll) return false;
  if (extent.input > extent.output) return output == input + own;
  if (extent.output > extent.input) return input == output + own;
  return input == output;
}

}  // namespace

void check_call(const Call& call, int rank, int size) {
  if (call.kind == OperationKind::kBarrier) return;
  const char* name = name_of(call.kind);
  REIGEN_CHECK(call.root >= 0 && call.root < size, "[{}] root out of range\n  got: {}   expected: 0 to {}", name,
               call.root, size - 1);
  REIGEN_CHECK(size_of(call.type) != 0, "[{}] unknown data type\n  got: {}", name, static_cast<int>(call.type));
  REIGEN_CHECK(!reduces(call.kind) || is_defined(call.op, call.type), "[{}] there is no {} of {}", name,
               name_of(call.op), name_of(call.type));
  REIGEN_CHECK(call.count <= SIZE_MAX / 2 / size_of(call.type) / static_cast<std::size_t>(size),
               "[{}] the count is too large\n  got: {} elements of {} on {} ranks", name, call.count,
               name_of(call.type), size);
  if (call.count == 0) return;
  const Extent extent = extent_of(call, rank, size);
  REIGEN_CHECK(extent.input == 0 || call.input != nullptr, "[{}] null input for {} elements", name,
               extent.input * call.count);
  REIGEN_CHECK(extent.output == 0 || call.output != nullptr, "[{}] null output for {} elements", name,
               extent.output * call.count);
  if (extent.input == 0 || extent.output == 0) return;
  const auto input = reinterpret_cast<std::uintptr_t>(call.input);
  const auto output = reinterpret_cast<std::uintptr_t>(call.output);
  const bool apart = input + extent.input * call.bytes() <= output || output + extent.output * call.bytes() <= input;
  REIGEN_CHECK(apart || is_in_place(call, extent, rank),
               "[{}] input and output overlap\n  got: input {} ({} bytes), output {} ({} bytes)   expected: apart{}",
               name, call.input, extent.input * call.bytes(), call.output, extent.output * call.bytes(),
               call.kind == OperationKind::kAllToAll ? "" : ", or in place as the operation's description says");
}

}  // namespace reigen::comm
