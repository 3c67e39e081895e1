// Makes the Call for each function of a Communicator or a CallList.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "comm/call/call.h"

namespace reigen::comm::request {

using Counts = std::span<const std::size_t>;

// Sets the options of a call; Options is CallOptions or StartOptions. Returns a reference to `call`, which must be used
// in the same expression. A copy would take noticeable time in a call of a few bytes.
template <class Options>
Call&& with(Call&& call, const Options& options) {
  if (!options.tag.empty()) call.tag = options.tag;
  call.factor = options.factor;
  call.after = options.after;
  return std::move(call);
}

inline std::vector<std::size_t> to_vector(Counts counts) { return {counts.begin(), counts.end()}; }

inline Call all_reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op) {
  return Call{
      .kind = OperationKind::kAllReduce, .input = input, .output = output, .count = count, .type = type, .op = op};
}
inline Call broadcast(void* data, std::size_t count, DataType type, int root) {
  return Call{
      .kind = OperationKind::kBroadcast, .input = data, .output = data, .count = count, .type = type, .root = root};
}
inline Call all_gather(const void* input, void* output, std::size_t count, DataType type) {
  return Call{.kind = OperationKind::kAllGather, .input = input, .output = output, .count = count, .type = type};
}
inline Call reduce_scatter(const void* input, void* output, std::size_t count, DataType type, ReduceOp op) {
  return Call{
      .kind = OperationKind::kReduceScatter, .input = input, .output = output, .count = count, .type = type, .op = op};
}
inline Call reduce(const void* input, void* output, std::size_t count, DataType type, ReduceOp op, int root) {
  return Call{.kind = OperationKind::kReduce,
              .input = input,
              .output = output,
              .count = count,
              .type = type,
              .op = op,
              .root = root};
}
inline Call gather(const void* input, void* output, std::size_t count, DataType type, int root) {
  return Call{
      .kind = OperationKind::kGather, .input = input, .output = output, .count = count, .type = type, .root = root};
}
inline Call scatter(const void* input, void* output, std::size_t count, DataType type, int root) {
  return Call{
      .kind = OperationKind::kScatter, .input = input, .output = output, .count = count, .type = type, .root = root};
}
inline Call all_to_all(const void* input, void* output, std::size_t count, DataType type) {
  return Call{.kind = OperationKind::kAllToAll, .input = input, .output = output, .count = count, .type = type};
}
inline Call all_gather_v(const void* input, void* output, Counts counts, DataType type) {
  return Call{
      .kind = OperationKind::kAllGatherV, .input = input, .output = output, .type = type, .counts = to_vector(counts)};
}
inline Call reduce_scatter_v(const void* input, void* output, Counts counts, DataType type, ReduceOp op) {
  return Call{.kind = OperationKind::kReduceScatterV,
              .input = input,
              .output = output,
              .type = type,
              .op = op,
              .counts = to_vector(counts)};
}
inline Call gather_v(const void* input, void* output, Counts counts, DataType type, int root) {
  return Call{.kind = OperationKind::kGatherV,
              .input = input,
              .output = output,
              .type = type,
              .root = root,
              .counts = to_vector(counts)};
}
inline Call scatter_v(const void* input, void* output, Counts counts, DataType type, int root) {
  return Call{.kind = OperationKind::kScatterV,
              .input = input,
              .output = output,
              .type = type,
              .root = root,
              .counts = to_vector(counts)};
}
inline Call all_to_all_v(const void* input, Counts leaves, void* output, Counts arrives, DataType type) {
  return Call{.kind = OperationKind::kAllToAllV,
              .input = input,
              .output = output,
              .type = type,
              .counts = to_vector(leaves),
              .arrives = to_vector(arrives)};
}
inline Call send(const void* data, std::size_t count, DataType type, int to) {
  return Call{.kind = OperationKind::kSend, .input = data, .count = count, .type = type, .root = to};
}
inline Call recv(void* data, std::size_t count, DataType type, int from) {
  return Call{.kind = OperationKind::kRecv, .output = data, .count = count, .type = type, .root = from};
}
inline Call barrier() { return Call{}; }

}  // namespace reigen::comm::request
