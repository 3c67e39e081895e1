// What a rank asked for: one call of a Communicator's function.
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
// Of the same operation with blocks of one size: kAllGather for kAllGatherV.
OperationKind even_kind(OperationKind kind);
inline bool is_uneven(OperationKind kind) { return even_kind(kind) != kind; }
// Between two ranks; the others do not know of it.
inline bool is_between_two(OperationKind kind) { return kind == OperationKind::kSend || kind == OperationKind::kRecv; }
bool reduces(OperationKind kind);
bool has_root(OperationKind kind);

// Of a call on a device's memory: what its stream had to do before it.
class Before {
 public:
  virtual ~Before() = default;
  // Whether the device is through with it. Throws BackendError when the device has failed.
  virtual bool is_done() = 0;
};

struct Call {
  OperationKind kind = OperationKind::kBarrier;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // elements of one block: what one rank gives to, or gets from, one other; uneven: of all
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;  // of an operation between two: the other one
  std::string tag = {};
  Stream after = {};                      // of a device: the call begins after what is on it now
  std::shared_ptr<Before> before = {};    // ... which the backend has marked, if it waits for that on the host
  double factor = 1;                      // sums: this rank's input is multiplied by it
  std::vector<std::size_t> counts = {};   // uneven: elements of the block of (all_to_all_v: for) every rank
  std::vector<std::size_t> arrives = {};  // all_to_all_v: elements from every rank

  std::size_t bytes() const { return count * size_of(type); }
};

// Elements that a rank reads from its input and writes to its output; 0: the pointer may be null.
struct Extent {
  std::size_t input = 0;
  std::size_t output = 0;
};

Extent extent_of(const Call& call, int rank, int size);

// Elements before block `index`.
std::size_t begin_of(const std::vector<std::size_t>& counts, int index);

// What ranks compare of the counts of an uneven call: nothing for even ones, and for all_to_all_v, where each pair of
// ranks compares what passes between the two.
inline constexpr std::size_t kCountsShown = 4;  // in messages; the others are compared by their hash
struct CountsDigest {
  std::uint64_t total = 0;
  std::uint64_t hash = 0;
  std::array<std::uint64_t, kCountsShown> first = {};

  bool operator==(const CountsDigest&) const = default;
};
CountsDigest digest_of(const Call& call);
std::string describe(const CountsDigest& counts);  // " in blocks of 3, 4, 5, 6, ...", or nothing

// Throws InvalidArgument: null pointers, buffers that overlap in another way than "in place", a root outside the group,
// counts that overflow or are not one for every rank, a reduction that the type does not have, a factor where there is
// no sum of floats.
void check_call(const Call& call, int rank, int size);

}  // namespace reigen::comm
