// How one tensor is distributed over a grid of ranks, and in which memory.
//
// A grid has named axes, and every rank has one coordinate for each axis (mesh/mesh.h). For each axis, a placement
// describes how the ranks that differ only in this coordinate hold the tensor. The terms are those of PyTorch's
// DTensor; kFlat is FSDP's flat sharding.
// Thread rule: these types are values; every thread may have its own copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace reigen::layout {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

// One coordinate for each axis, outer to inner.
using Coordinates = std::vector<int>;

// How the ranks along one axis hold a tensor. c is a rank's coordinate on this axis.
enum class AlongKind {
  kReplicate,  // every rank has the same elements
  kShard,      // rank c has chunk c of the dimension (layout.h, chunk_of)
  kFlat,       // rank c has a run of elements: its share of the flat buffer in which the tensor lies
  kPartial,    // every rank has a term of its own; the tensor is the mean of all terms
  kStage,      // the ranks of one pipeline stage have the tensor, all other ranks have nothing of it
};

struct Along {
  AlongKind kind = AlongKind::kReplicate;
  std::size_t dimension = 0;  // for kShard
  std::int64_t block = 1;     // for kShard: elements that stay together
  std::int64_t sections = 1;  // for kShard: parts of the dimension of which each is divided
  bool operator==(const Along&) const = default;
};

enum class Medium {
  kHost,
  kDevice,
  kDisk,
  kPinned,  // pinned memory of the host, which kernels of the GPU read and write over the bus
};

// Where a tensor is stored. If is_common is true, the ranks along axis dp_shard have one common copy, which all of them
// can read. When memory is added up, each of these ranks counts only the bytes of its share of this copy.
struct Residence {
  Medium medium = Medium::kHost;
  bool is_common = false;
  bool operator==(const Residence&) const = default;
};

// When a rank can read all elements of a tensor that is placed flat (kFlat).
enum class Whole {
  kAlways,
  kWhileUnitRuns,  // while the tensor's unit (part of the model) runs its forward or its backward
  kNever,
};

struct Placement {
  std::vector<Along> along = {};  // one for each axis
  Residence residence = {};
  Whole whole = Whole::kAlways;

  bool has(AlongKind kind) const;
  bool operator==(const Placement&) const = default;
};

// The placement as text: "replicate x flat, common memory, whole while its unit runs"
std::string to_text(const Placement& placement);

}  // namespace reigen::layout
