// One call of a function of a Communicator, as a rank made it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reigen/comm/types.h"
#include "reigen/device/device.h"

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
  kReduceScatterV,
  kAllGatherV,
  kGatherV,
  kScatterV,
  kAllToAllV,
  kSend,
  kRecv,
};

const char* name_of(OperationKind kind);
// An operation is uneven if its blocks may have different sizes (kAllGatherV). even_kind() is the same operation with
// blocks of one size (kAllGather).
OperationKind even_kind(OperationKind kind);
inline bool is_uneven(OperationKind kind) { return even_kind(kind) != kind; }
// Whether only two ranks take part (send, recv). The other ranks of the group do not make the call.
inline bool is_between_two(OperationKind kind) { return kind == OperationKind::kSend || kind == OperationKind::kRecv; }
bool reduces(OperationKind kind);
bool has_root(OperationKind kind);

// For a call on a device's memory: the work that was on the call's stream when the call was made. The call begins after
// this work.
class Before {
 public:
  virtual ~Before() = default;
  // Whether the device has done the work. Throws BackendError when the device has failed.
  virtual bool is_done() = 0;
};

struct Call {
  OperationKind kind = OperationKind::kBarrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // `count` of the Communicator's function, in elements; 0 in an uneven operation
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  // in a send or recv: the other rank
  std::string tag = {};
  Stream after = {};                      // the call begins after the work on this stream (CallOptions::after)
  std::shared_ptr<Before> before = {};    // marks the work on `after` (Backend::mark), if the host must wait for it
  double factor = 1;                      // for sums: multiplies this rank's input
  std::vector<std::size_t> counts = {};   // uneven operations: counts[q] is the number of elements of rank q's block
  std::vector<std::size_t> arrives = {};  // all_to_all_v: arrives[q] elements come from rank q, counts[q] go to it

  std::size_t bytes() const { return count * size_of(type); }
};

// The number of elements that a rank reads from its input, and the number that it writes to its output. If a number is
// 0, the pointer to that buffer may be null.
struct Extent {
  std::size_t input = 0;
  std::size_t output = 0;
};

Extent extent_of(const Call& call, int rank, int size);

// The number of elements before block `index`, if the blocks have the sizes `counts` and lie one after the other.
std::size_t begin_of(const std::vector<std::size_t>& counts, int index);

// A digest of the block sizes of an uneven call, which ranks compare instead of all sizes. It is empty for a call with
// blocks of one size. It is also empty for all_to_all_v, where each pair of ranks compares the sizes of the two blocks
// that it exchanges.
inline constexpr std::size_t kCountsShown = 4;  // the most counts that an error message shows
struct CountsDigest {
  std::uint64_t total = 0;
  std::uint64_t hash = 0;
  std::array<std::uint64_t, kCountsShown> first = {};

  bool operator==(const CountsDigest&) const = default;
};
CountsDigest digest_of(const Call& call);
std::string describe(const CountsDigest& counts);  // " in blocks of 3, 4, 5, 6, ...", or an empty text

// Throws InvalidArgument for null pointers, buffers that overlap but do not lie as an in-place call requires, a root
// outside the group, counts that overflow, a number of counts that is not the number of ranks, a reduction that the
// type does not have, and a factor in a call that sums no floats.
void check_call(const Call& call, int rank, int size);

}  // namespace reigen::comm
