// A layout says which rank holds which part of a model. It is the one source for the packing of tensors into flat
// buffers, the formula for the memory need, the manifest of a checkpoint, and the report of the memory in use.
//
//   part_of(t, role, c) = the part that the rank at coordinates c holds of the values, gradients or states of tensor t
//   bytes(role, c)      = the persistent bytes of all values, gradients or states on that rank, including padding of
//                         flat buffers
//
// Tensors that are placed flat (placement.h) lie together in flat buffers (Range). The tensors of one buffer have one
// element type. If gradients are sharded, the tensors of one buffer also belong to one unit. They lie in order, each at
// a multiple of 64 bytes, and at least one spare element follows each tensor. A buffer is divided into P shares, one
// for each rank along axis dp_shard. Each tensor is divided into blocks of kBlockElements elements. Share q begins at
// the block boundary that is nearest to q/P of the elements, so no block belongs to two ranks.
//
// choose() (choose.h) makes layouts. A layout allocates no memory for tensors and does not communicate. Thread rule:
// these types are values; every thread may have its own copy. Any thread may call const functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "reigen/format/safetensors.h"
#include "reigen/layout/model.h"
#include "reigen/layout/part.h"
#include "reigen/layout/placement.h"

namespace reigen::layout {

// The number of elements that a pass over a parameter processes at a time. These elements and the optimizer states that
// belong to them fit in the second-level cache.
inline constexpr std::int64_t kBlockElements = 16384;

// Returns where chunk `index` of `count` chunks of a dimension begins, and its size. The dimension consists of n
// blocks. Each chunk has n / count blocks, rounded down, and the first n % count chunks have one more.
std::pair<std::int64_t, std::int64_t> chunk_of(std::int64_t size, std::int64_t block, int index, int count);

enum class Role {
  kValue,     // the weights that forward and backward read
  kGradient,  // the gradients, from the end of backward to the step
  kState,     // the optimizer states: each state of Layout::states()
};
inline constexpr std::size_t kRoles = 3;

// How a flat buffer is divided, as one rank sees it: the boxes of the tensors may differ between ranks.
struct Range {
  format::TensorType type = format::TensorType::kF32;
  std::size_t unit = kNoUnit;
  bool trainable = true;
  std::vector<std::size_t> tensors = {};   // indices in the model, in the order of the buffer
  std::vector<Shape> shapes = {};          // shape of the box of each tensor that lies in this buffer
  std::vector<std::int64_t> offsets = {};  // where each tensor begins, in elements
  std::int64_t elements = 0;               // number of elements of the whole buffer
  std::vector<std::int64_t> bounds = {};   // share q has the elements [bounds[q], bounds[q + 1])
  // The sizes, in elements, of the spare blocks that follow the gradients in the gradient buffer. They exist only for
  // kPartial gradients (placement.h). Backward writes a large gradient into a spare block. This block and the
  // gradient's own block then exchange their roles.
  std::vector<std::int64_t> spares = {};

  std::int64_t share_elements(int q) const;
};

// The bytes of gradients and of weights (`values`) that one rank sends in one step, with the algorithms that send the
// least. The rank receives as many bytes.
struct Traffic {
  std::int64_t gradients = 0;
  std::int64_t values = 0;
};

class Layout {
 public:
  const ModelSpec& model() const { return model_; }
  const std::vector<StateSpec>& states() const { return states_; }
  const std::vector<Axis>& axes() const { return axes_; }  // outer to inner
  int ranks() const;                                       // ranks of the whole grid
  // The size of an axis; 1 if there is no such axis.
  int size(const std::string& axis) const;
  // The coordinates of `rank` in the grid. Ranks are numbered as in mesh/mesh.h: along the last axis they are
  // consecutive.
  Coordinates coordinates_of(int rank) const;

  // In the functions below, `tensor` is an index in ModelSpec::tensors, and `at` are the coordinates of a rank.
  const Placement& placement(std::size_t tensor, Role role) const;
  Part part_of(std::size_t tensor, Role role, const Coordinates& at) const;
  // The part that the rank writes to a checkpoint. The parts of all ranks do not overlap, and together they are the
  // whole tensor.
  Part given_by(std::size_t tensor, Role role, const Coordinates& at) const;
  // The box of the tensor that the rank computes with: the whole tensor, or its part along the axes that divide a
  // dimension (kShard). It has no elements if the tensor belongs to another stage.
  Part box_of(std::size_t tensor, const Coordinates& at) const;
  // The flat buffers of one rank: first those of trainable tensors, then those of frozen tensors that are divided among
  // ranks.
  std::vector<Range> ranges(const Coordinates& at) const;
  // True for tensors that lie in a buffer of ranges().
  bool is_packed(std::size_t tensor) const;
  // is_of_stage() is false if the tensor belongs to stages of other ranks only. is_first_stage() is false also for a
  // copy (TensorSpec::copies).
  bool is_of_stage(std::size_t tensor, const Coordinates& at) const;
  bool is_first_stage(std::size_t tensor, const Coordinates& at) const;

  std::int64_t bytes(Role role, const Coordinates& at) const;
  // The part of bytes(role, at) that is stored in `medium`.
  std::int64_t bytes(Role role, const Coordinates& at, Medium medium) const;
  // Bytes that the rank writes to a checkpoint: weights and optimizer states.
  std::int64_t bytes_given(const Coordinates& at) const;
  // If averaged gradients are sharded, a rank also needs memory for whole gradients until they are averaged. This
  // function returns the bytes of these whole gradients. They exist only between the backwards of several
  // micro-batches, so bytes() does not count them.
  std::int64_t bytes_before_averaging(const Coordinates& at) const;
  // What the rank sends in a step of so many micro-batches. Weights that come and go are gathered for each of them.
  Traffic traffic(const Coordinates& at, int micro_batches = 1) const;

  // The axes, and the placements of the first trainable tensor, as text: "dp_shard 4: values flat, memory, whole
  // always; gradients replicate, memory; states flat, disk"
  std::string to_text() const;

 private:
  friend class Chooser;
  std::size_t flat_axis() const;
  Part box_of(std::size_t tensor, const Placement& placement, const Coordinates& at) const;
  format::TensorType type_of(const StateSpec& state, std::size_t tensor) const;
  std::vector<Range> packed(const Coordinates& at) const;
  // The same as ranges(at), without a copy. If ranks have different buffers, the ranges are computed and stored in
  // `own`.
  const std::vector<Range>& ranges(const Coordinates& at, std::vector<Range>& own) const;
  Part part_in(const std::vector<Range>& ranges, std::size_t tensor, Role role, const Coordinates& at) const;
  Part given_in(const std::vector<Range>& ranges, std::size_t tensor, Role role, const Coordinates& at) const;
  template <class Visit>
  void visit_bytes(Role role, const Coordinates& at, const Visit& visit) const;

  ModelSpec model_;
  std::vector<StateSpec> states_;
  std::vector<Axis> axes_;
  std::vector<std::array<Placement, kRoles>> placements_;  // one for each tensor
  bool packs_by_unit_ = false;                             // if false, all tensors of one type share a buffer
  bool packs_frozen_ = false;
  std::size_t group_bytes_ = 0;  // size of a buffer for tensors that are in no unit
  bool packs_alike_ = false;     // true if only axis dp_shard divides tensors; ranges_ is then the same on all ranks
  std::vector<Range> ranges_;
  int gathers_ = 0;  // how often weights are gathered for one micro-batch
  format::TensorType value_type_on_the_way(const Range& range) const;
  format::TensorType gradient_type_on_the_way(const Range& range) const;
  std::optional<format::TensorType> gather_type_;
  std::optional<format::TensorType> reduce_type_;
};

}  // namespace reigen::layout
