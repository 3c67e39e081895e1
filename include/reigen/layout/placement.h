// How one tensor lies on a grid of ranks, and in which memory.
//
// A grid has named axes, and every rank one coordinate for each (mesh/mesh.h). A placement says for each axis what
// ranks that differ in this axis alone have of the tensor. The words are those of PyTorch's DTensor; kFlat is FSDP's.
// Thread rule: values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace reigen::layout {

struct Axis {
  std::string name;
  int size = 1;
  bool operator==(const Axis&) const = default;
};

// One number for each axis, outer to inner.
using Coordinates = std::vector<int>;

enum class AlongKind {
  kReplicate,  // every rank has the same
  kShard,      // rank c has rows c of the dimension, cut as torch.chunk() cuts
  kFlat,       // rank c has a run of elements: its share of the flat buffer that the tensor lies in
  kPartial,    // every rank has a summand of its own; the tensor is their mean
  kStage,      // the rank of the tensor's pipeline stage has it, others have nothing
};

struct Along {
  AlongKind kind = AlongKind::kReplicate;
  std::size_t dimension = 0;  // kShard
  bool operator==(const Along&) const = default;
};

enum class Medium { kHost, kDevice, kDisk };

// Where the memory is. is_common: the ranks of the flat axis have one copy among them, which all can read. Each of them
// accounts for its share of it.
struct Residence {
  Medium medium = Medium::kHost;
  bool is_common = false;
  bool operator==(const Residence&) const = default;
};

// How long a rank can read all of a tensor that lies flat.
enum class Whole {
  kAlways,
  kWhileUnitRuns,  // from the start of the unit's forward or backward to its end
  kNever,
};

struct Placement {
  std::vector<Along> along = {};  // one for each axis
  Residence residence = {};
  Whole whole = Whole::kAlways;

  bool has(AlongKind kind) const;
  bool operator==(const Placement&) const = default;
};

// "replicate x flat, common memory, whole while its unit runs"
std::string to_text(const Placement& placement);

}  // namespace reigen::layout
