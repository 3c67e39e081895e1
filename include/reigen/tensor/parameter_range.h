// A flat range of parameters, with a twin buffer for their gradients. Optimizers, checkpoints and hashes work on
// ranges.
//
// `values` and `gradients` are one-dimensional, of one element type and of one layout: segment i holds one parameter
// at [offset, offset + numel) of both. Offsets are multiples of 64 bytes and every segment is followed by at least one
// spare element. The elements between segments are zero while no backward is running, so a pass over the whole range is
// harmless.
//
// A parameter's gradient is its `.grad`, as everywhere in LibTorch. It may be undefined (no backward reached the
// parameter, so an optimizer skips it), it may lie in the twin buffer (as all gradients do after a data-parallel
// backward), or it may be a tensor of its own (on one rank alone, where a copy would gain nothing). gather_gradients()
// copies gradients of the last kind into the twin. Where backward makes gradients in spare blocks (rows()), the twin is
// no longer one flat buffer: gradient_slot() gives the place of each gradient.
//
// A range may be divided among ranks (data_parallel's Shard): each rank changes only elements [begin(), end()) of the
// values, and has optimizer states only for these. sharing() says where the other ranks' values are (range_values.h).
// Averaged gradients may be sharded in the same way: each rank gets the mean of its share (share()), or computes it
// from the memory in which all ranks' gradients lie (rows()).
//
// A range is a handle: copies refer to the same memory. It keeps the memory and the parameters alive.
// Thread rule: as for a tensor, one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "reigen/layout/layout.h"
#include "reigen/tensor/range_values.h"

namespace reigen::tensor {

class GradientRows;
class GradientShare;
class MemoryResource;

// Boundaries of shares lie between blocks of this many elements.
using layout::kBlockElements;

struct Segment {
  std::string name;                       // the module's name for the parameter: "conv1.weight"
  std::vector<std::string> aliases = {};  // further names of a tied parameter
  std::vector<std::int64_t> shape = {};
  std::int64_t offset = 0;  // in elements
  std::int64_t numel = 0;
  at::Tensor parameter;  // the module's own tensor, a view into `values`
};

class ParameterRange {
 public:
  // The memory of a range (flat_parameters.h makes ranges).
  struct Memory {
    at::Tensor values = {};
    at::Tensor gradients = {};
    std::shared_ptr<RangeValues> sharing = {};  // null: the range is not sharded
    std::shared_ptr<GradientRows> rows = {};
    std::shared_ptr<GradientShare> share = {};
    std::shared_ptr<MemoryResource> resource = {};  // null: a resource of its own
    layout::Residence states = {};                  // where make_twin() puts states
  };
  ParameterRange(Memory memory, std::vector<Segment> segments);

  const at::Tensor& values() const { return memory_->values; }
  const at::Tensor& gradients() const { return memory_->gradients; }
  const std::vector<Segment>& segments() const { return *segments_; }
  std::size_t size() const { return segments_->size(); }
  // The number of the parameters' elements, without spare elements.
  std::int64_t numel() const;

  // The elements of the flat buffers that this rank changes; all elements if the range is not sharded.
  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return end_; }
  at::Tensor own_part(const at::Tensor& flat) const { return flat.narrow(0, begin_, end_ - begin_); }
  // The part of a segment that lies within [begin(), end()); it may be empty.
  layout::Part part_of(const Segment& segment) const;

  // Whether ranks shard the range, and whether its values are in memory that all ranks share.
  bool is_divided() const { return sharing().shares().has_value(); }
  bool is_common() const { return sharing().is_common(); }
  // Which ranks shard the range, and how each rank sees the other ranks' changes.
  RangeValues& sharing() const { return *memory_->sharing; }
  // Tells this rank that values in common memory were changed on purpose. Every rank calls it after the change and a
  // barrier. Optimizers and averages of reigen::optim call it. If one rank changes values by hand, all ranks must call
  // it.
  void note_change() const { sharing().note_change(); }

  // If each rank gets only its share of the averaged gradients, one of these two is set. rows(): the rank computes its
  // share from memory in which all ranks' gradients lie. share(): the ranks send each other gradients. Otherwise both
  // are null.
  const std::shared_ptr<GradientRows>& rows() const { return memory_->rows; }
  const std::shared_ptr<GradientShare>& share() const { return memory_->share; }
  bool divides_averages() const { return rows() != nullptr || share() != nullptr; }

  // Zeros in the layout of `values`, for optimizer states. If the range is divided among ranks, each rank uses only
  // own_part() of the result. If the values are in memory that all ranks share, the twin is too, and the call is
  // collective; otherwise only own_part() takes memory.
  at::Tensor make_twin(at::ScalarType type) const;
  MemoryResource& resource() const { return *memory_->resource; }

  // True if the segment has a gradient.
  bool is_active(std::size_t segment) const;
  // The buffer of which gradient_slot() returns views.
  const at::Tensor& gradient_flat() const;
  // True if the segment has a gradient that lies in its slot.
  bool is_in_place(std::size_t segment) const;
  // The place of the segment's gradient, with the parameter's shape. Its contents count only when is_in_place().
  const at::Tensor& gradient_slot(std::size_t segment) const { return (*slots_)[segment]; }

  // Makes the segment's gradient lie in its slot: copies it there and rebinds `.grad`, so that the original tensor is
  // freed. Does nothing if the gradient is there already. It costs one pass at most. Accepts any strides, sparse
  // gradients, and gradients with a graph (the graph is lost). Throws InvalidArgument when the gradient's shape is not
  // the parameter's.
  void gather_gradient(std::size_t segment) const;
  // As gather_gradient(), for a gradient that a backward has just made. If the gradient lies in a spare block, it is
  // not copied: the block becomes the slot. After it, the ranks must exchange the places of their gradients before the
  // next step (GradientRows).
  void take_gradient(std::size_t segment) const;
  void gather_gradients() const;  // of all active segments

  // `.grad` = undefined for every parameter, so the next backward has no old gradients to add to, and nothing is
  // zeroed.
  void drop_gradients() const;

 private:
  std::shared_ptr<const Memory> memory_;
  std::shared_ptr<const std::vector<Segment>> segments_;
  std::shared_ptr<std::vector<at::Tensor>> slots_;
  std::int64_t begin_ = 0;
  std::int64_t end_ = 0;
};

}  // namespace reigen::tensor

namespace reigen {
using tensor::ParameterRange;
}  // namespace reigen
