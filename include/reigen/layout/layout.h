// Who has what of a model: the one value that packing, the memory formula, the manifest and the report of memory read.
//
//   part_of(t, role, c) = the part of tensor t that the rank at coordinates c has in that role
//   bytes(role, c)      = the persistent bytes of that role on that rank, what pads flat buffers included
//
// Tensors that lie flat share buffers (Range): of one type and one unit, in order, each at a multiple of 64 bytes and
// followed by at least one spare element. Share q of a buffer begins at the block of kBlockElements that is nearest to
// q/P of the elements, so a pass over blocks never crosses into another rank's share.
//
// choose() (choose.h) makes layouts. Pure: no memory, no communication. Thread rule: values; const calls from any
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reigen/format/safetensors.h"
#include "reigen/layout/model.h"
#include "reigen/layout/part.h"
#include "reigen/layout/placement.h"

namespace reigen::layout {

// Elements that a pass over a parameter takes at a time: with an optimizer's states they stay in the second-level
// cache.
inline constexpr std::int64_t kBlockElements = 16384;

enum class Role {
  kValue,     // what forward and backward read
  kGradient,  // from the end of backward to the step
  kState,     // each of Layout::states()
};
inline constexpr std::size_t kRoles = 3;

// A flat buffer on one rank.
struct Range {
  format::TensorType type = format::TensorType::kF32;
  std::size_t unit = kNoUnit;
  bool trainable = true;
  std::vector<std::size_t> tensors = {};   // of the model, in the order in which they lie
  std::vector<Shape> shapes = {};          // of what lies here of each: its box
  std::vector<std::int64_t> offsets = {};  // in elements
  std::int64_t elements = 0;               // of the buffer
  std::vector<std::int64_t> bounds = {};   // share q: [bounds[q], bounds[q + 1])
  // Elements of further blocks that follow the gradients where these are kPartial. Backward makes large gradients in
  // such a block, which then takes the place of the gradient's own.
  std::vector<std::int64_t> spares = {};

  std::int64_t share_elements(int q) const;
};

// Bytes that one rank sends in one step, and so receives, by an algorithm that sends the least.
struct Traffic {
  std::int64_t gradients = 0;
  std::int64_t values = 0;
};

class Layout {
 public:
  const ModelSpec& model() const { return model_; }
  const std::vector<StateSpec>& states() const { return states_; }
  const std::vector<Axis>& axes() const { return axes_; }  // outer to inner
  int ranks() const;                                       // of the whole grid
  // Of an axis that there is not: 1.
  int size(const std::string& axis) const;
  // Ranks in order, as mesh/mesh.h numbers them.
  Coordinates coordinates_of(int rank) const;

  const Placement& placement(std::size_t tensor, Role role) const;
  Part part_of(std::size_t tensor, Role role, const Coordinates& at) const;
  // What the rank gives to a checkpoint. The parts that all ranks give are disjoint and make the tensor up.
  Part given_by(std::size_t tensor, Role role, const Coordinates& at) const;
  // The flat buffers of one rank: of trainable tensors, then of frozen ones that ranks divide.
  std::vector<Range> ranges(const Coordinates& at) const;
  // True for tensors that lie in a buffer of ranges().
  bool is_packed(std::size_t tensor) const;

  std::int64_t bytes(Role role, const Coordinates& at) const;
  // The part of bytes() that lies in that medium.
  std::int64_t bytes(Role role, const Coordinates& at, Medium medium) const;
  // Bytes that the rank gives to a checkpoint: values and states.
  std::int64_t bytes_given(const Coordinates& at) const;
  // Of gradients that are not averaged yet, where these are whole beside the rank's share of the averaged ones. Not
  // persistent: between the backwards of several micro-batches alone.
  std::int64_t bytes_before_averaging(const Coordinates& at) const;
  Traffic traffic(const Coordinates& at) const;

  // The axes, then the placements of the first trainable tensor: "dp_shard 4: values flat, memory, whole always;
  // gradients replicate, memory; states flat, disk"
  std::string to_text() const;

 private:
  friend class Chooser;
  std::size_t flat_axis() const;
  bool is_of_stage(std::size_t tensor, const Coordinates& at) const;
  Part box_of(std::size_t tensor, const Placement& placement, const Coordinates& at) const;
  format::TensorType type_of(const StateSpec& state, std::size_t tensor) const;
  std::vector<Range> packed(const Coordinates& at) const;
  // The same as ranges(at), without a copy. Where ranks have different buffers they are made anew, in `own`.
  const std::vector<Range>& ranges(const Coordinates& at, std::vector<Range>& own) const;
  Part part_in(const std::vector<Range>& ranges, std::size_t tensor, Role role, const Coordinates& at) const;
  Part given_in(const std::vector<Range>& ranges, std::size_t tensor, Role role, const Coordinates& at) const;
  template <class Visit>
  void visit_bytes(Role role, const Coordinates& at, const Visit& visit) const;

  ModelSpec model_;
  std::vector<StateSpec> states_;
  std::vector<Axis> axes_;
  std::vector<std::array<Placement, kRoles>> placements_;  // one for each tensor
  bool packs_by_unit_ = false;                             // else all tensors of one type share a buffer
  bool packs_frozen_ = false;
  std::size_t group_bytes_ = 0;  // of a buffer of tensors that are of no unit
  bool packs_alike_ = false;     // no axis but dp_shard divides: ranges_ is every rank's
  std::vector<Range> ranges_;
  int gathers_ = 0;  // of the values in one step
  format::TensorType value_type_on_the_way(const Range& range) const;
  format::TensorType gradient_type_on_the_way(const Range& range) const;
  std::optional<format::TensorType> gather_type_;
  std::optional<format::TensorType> reduce_type_;
};

}  // namespace reigen::layout
