#include "comm/call/call.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/hash.h"

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
    case OperationKind::kReduceScatterV: return "reduce_scatter_v";
    case OperationKind::kAllGatherV: return "all_gather_v";
    case OperationKind::kGatherV: return "gather_v";
    case OperationKind::kScatterV: return "scatter_v";
    case OperationKind::kAllToAllV: return "all_to_all_v";
    case OperationKind::kSend: return "send";
    case OperationKind::kRecv: return "recv";
  }
  return "?";
}

OperationKind even_kind(OperationKind kind) {
  switch (kind) {
    case OperationKind::kReduceScatterV: return OperationKind::kReduceScatter;
    case OperationKind::kAllGatherV: return OperationKind::kAllGather;
    case OperationKind::kGatherV: return OperationKind::kGather;
    case OperationKind::kScatterV: return OperationKind::kScatter;
    case OperationKind::kAllToAllV: return OperationKind::kAllToAll;
    default: return kind;
  }
}

bool reduces(OperationKind kind) {
  const OperationKind even = even_kind(kind);
  return even == OperationKind::kAllReduce || even == OperationKind::kReduceScatter || even == OperationKind::kReduce;
}

bool has_root(OperationKind kind) {
  const OperationKind even = even_kind(kind);
  return even == OperationKind::kBroadcast || even == OperationKind::kReduce || even == OperationKind::kGather ||
         even == OperationKind::kScatter;
}

std::size_t begin_of(const std::vector<std::size_t>& counts, int index) {
  return std::accumulate(counts.begin(), counts.begin() + index, std::size_t{0});
}

CountsDigest digest_of(const Call& call) {
  CountsDigest digest;
  if (!is_uneven(call.kind) || call.kind == OperationKind::kAllToAllV) return digest;
  digest.hash = base::kFnvBasis;
  for (const std::size_t count : call.counts) {
    digest.hash = base::fnv1a_step(digest.hash, count);
    digest.total += count;
  }
  std::copy_n(call.counts.begin(), std::min(call.counts.size(), kCountsShown), digest.first.begin());
  return digest;
}

std::string describe(const CountsDigest& counts) {
  if (counts.hash == 0) return "";
  std::string text;
  std::uint64_t sum = 0;
  for (const std::uint64_t count : counts.first) {
    if (sum == counts.total && !text.empty()) break;  // only empty blocks follow
    text += fmt::format("{}{}", text.empty() ? "" : ", ", count);
    sum += count;
  }
  return " in blocks of " + text + (sum < counts.total ? ", ..." : "");
}

Extent extent_of(const Call& call, int rank, int size) {
  const bool uneven = is_uneven(call.kind);
  const bool is_root = rank == call.root;
  const std::size_t one = uneven ? call.counts[static_cast<std::size_t>(rank)] : call.count;
  const std::size_t all = uneven ? begin_of(call.counts, size) : call.count * static_cast<std::size_t>(size);
  switch (even_kind(call.kind)) {
    case OperationKind::kAllReduce: return {one, one};
    case OperationKind::kReduceScatter: return {all, one};
    case OperationKind::kAllGather: return {one, all};
    case OperationKind::kBroadcast: return {is_root ? one : 0, is_root ? 0 : one};
    case OperationKind::kReduce: return {one, is_root ? one : 0};
    case OperationKind::kGather: return {one, is_root ? all : 0};
    case OperationKind::kScatter: return {is_root ? all : 0, one};
    case OperationKind::kAllToAll: return {all, uneven ? begin_of(call.arrives, size) : all};
    case OperationKind::kSend: return {one, 0};
    case OperationKind::kRecv: return {0, one};
    default: break;
  }
  return {0, 0};
}

namespace {

// Whether the buffers lie as an in-place call requires: the smaller buffer is this rank's block of the larger buffer,
// or the two are the same buffer.
bool is_in_place(const Call& call, const Extent& extent, int rank) {
  const auto* input = static_cast<const std::byte*>(call.input);
  const auto* output = static_cast<const std::byte*>(call.output);
  const auto blocks = static_cast<std::size_t>(rank) * call.count;
  const std::size_t own = (is_uneven(call.kind) ? begin_of(call.counts, rank) : blocks) * size_of(call.type);
  switch (even_kind(call.kind)) {
    case OperationKind::kAllToAll: return false;
    case OperationKind::kReduceScatter:
    case OperationKind::kScatter: return output == input + own;
    case OperationKind::kAllGather:
    case OperationKind::kGather: return input == output + own;
    default: return extent.input == extent.output && input == output;
  }
}

// Every sum of counts that extent_of() and the backends form must fit into a size_t, in bytes and with room to spare.
void check_counts(const Call& call, int size) {
  const char* name = name_of(call.kind);
  const std::size_t most = SIZE_MAX / 4 / size_of(call.type);
  if (!is_uneven(call.kind)) {
    REIGEN_CHECK(call.count <= most / static_cast<std::size_t>(size),
                 "[{}] the count is too large\n  got: {} elements of {} on {} ranks", name, call.count,
                 name_of(call.type), size);
    return;
  }
  const auto check = [&](const std::vector<std::size_t>& counts, const char* what) {
    REIGEN_CHECK(counts.size() == static_cast<std::size_t>(size),
                 "[{}] {}: one count for every rank\n  got: {} counts   expected: {}", name, what, counts.size(), size);
    std::size_t sum = 0;
    for (const std::size_t count : counts) {
      REIGEN_CHECK(count <= most - sum, "[{}] {}: together too large\n  got: {} elements of {} and more", name, what,
                   count, name_of(call.type));
      sum += count;
    }
  };
  check(call.counts, "counts");
  if (call.kind == OperationKind::kAllToAllV) check(call.arrives, "counts that arrive");
}

void check_factor(const Call& call) {
  if (call.factor == 1) return;
  const bool floats = call.type == DataType::kFloat16 || call.type == DataType::kBfloat16 ||
                      call.type == DataType::kFloat32 || call.type == DataType::kFloat64;
  REIGEN_CHECK(reduces(call.kind) && call.op == ReduceOp::kSum && floats && std::isfinite(call.factor),
               "[{}] a factor is for sums of floats\n  got: factor {}, {} of {}   expected: a finite factor, sum",
               name_of(call.kind), call.factor, name_of(call.op), name_of(call.type));
}

void check_buffers(const Call& call, int rank, int size) {
  const char* name = name_of(call.kind);
  const Extent extent = extent_of(call, rank, size);
  REIGEN_CHECK(extent.input == 0 || call.input != nullptr, "[{}] null input for {} elements", name, extent.input);
  REIGEN_CHECK(extent.output == 0 || call.output != nullptr, "[{}] null output for {} elements", name, extent.output);
  if (extent.input == 0 || extent.output == 0) return;
  const auto input = reinterpret_cast<std::uintptr_t>(call.input);
  const auto output = reinterpret_cast<std::uintptr_t>(call.output);
  const std::size_t input_bytes = extent.input * size_of(call.type);
  const std::size_t output_bytes = extent.output * size_of(call.type);
  const bool apart = input + input_bytes <= output || output + output_bytes <= input;
  REIGEN_CHECK(
      apart || is_in_place(call, extent, rank),
      "[{}] input and output overlap\n  got: input {} ({} bytes), output {} ({} bytes)   expected: apart{}", name,
      call.input, input_bytes, call.output, output_bytes,
      even_kind(call.kind) == OperationKind::kAllToAll ? "" : ", or in place as the operation's description says");
}

}  // namespace

void check_call(const Call& call, int rank, int size) {
  if (call.kind == OperationKind::kBarrier) return;
  const char* name = name_of(call.kind);
  REIGEN_CHECK(call.root >= 0 && call.root < size, "[{}] {} out of range\n  got: {}   expected: 0 to {}", name,
               is_between_two(call.kind) ? "rank" : "root", call.root, size - 1);
  REIGEN_CHECK(!is_between_two(call.kind) || call.root != rank, "[{}] the other rank is this one\n  got: {}", name,
               call.root);
  REIGEN_CHECK(size_of(call.type) != 0, "[{}] unknown data type\n  got: {}", name, static_cast<int>(call.type));
  REIGEN_CHECK(!reduces(call.kind) || is_defined(call.op, call.type), "[{}] there is no {} of {}", name,
               name_of(call.op), name_of(call.type));
  check_counts(call, size);
  check_factor(call);
  check_buffers(call, rank, size);
}

}  // namespace reigen::comm
