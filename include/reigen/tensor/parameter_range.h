// A range consists of several parameters in one flat buffer (`values`), and of a second buffer of the same form for
// their gradients (`gradients`). Optimizers, checkpoints and hashes work on ranges.
//
// Both buffers are one-dimensional and have the same element type. Segment i is the place of one parameter in `values`,
// and of its gradient in `gradients`: the elements [offset, offset + numel). Offsets are multiples of 64 bytes, and at
// least one spare element follows every segment. The elements between segments are zero while no backward runs, so a
// pass over the whole buffer is harmless.
//
// A parameter's gradient is its `.grad`, as everywhere in LibTorch. `.grad` is undefined if no backward reached the
// parameter; an optimizer then skips the parameter. After a data-parallel backward all gradients lie in the buffer
// `gradients`. If there is only one rank, `.grad` is any tensor that backward made, because a copy into the buffer
// would gain nothing. gather_gradients() makes this copy. With kGradients on one machine, backward may write a gradient
// into a spare block of memory (rows()), outside of the buffer `gradients`. gradient_slot() returns the current place
// of each gradient.
//
// A range may be divided among ranks (data_parallel's Shard). Then each rank changes only the elements [begin(), end())
// of the values, its share, and has optimizer states only for them. sharing() says where the other ranks' values are
// (range_values.h). The averaged gradients may be divided in the same way. Then each rank receives the mean of its
// share (share()), or computes the mean from the memory in which all ranks' gradients lie (rows()).
//
// A ParameterRange is a handle: copies refer to the same memory. It keeps the memory and the parameters alive.
// Thread rule: one thread at a time may use a range, as with a tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/layout/layout.h"
#include "reigen/tensor/range_values.h"

namespace reigen::tensor {

class GradientRows;
class GradientShare;
class MemoryResource;

// The share of a rank consists of whole blocks of this many elements.
using layout::kBlockElements;

// The part of a parameter that a rank computes with, if ranks divide one of its dimensions (tensor parallelism).
struct Box {
  layout::Part part = {};
  layout::Shape whole = {};  // the shape of the whole parameter
};

struct Segment {
  std::string name;                       // the module's name for the parameter: "conv1.weight"
  std::vector<std::string> aliases = {};  // further names of a tied parameter
  std::optional<Box> box = {};            // nothing: the parameter is whole
  std::vector<std::int64_t> shape = {};
  std::int64_t offset = 0;  // in elements, from the begin of the buffer
  std::int64_t numel = 0;
  // False for the copy of a tied weight that another stage holds too: sums over all stages leave it out.
  bool counts = true;
  at::Tensor parameter;  // the module's own tensor, which is a view into `values`
};

class ParameterRange {
 public:
  // The memory of a range. FlatParameters (flat_parameters.h) creates it.
  struct Memory {
    at::Tensor values = {};
    at::Tensor gradients = {};
    std::shared_ptr<RangeValues> sharing = {};  // null means that the range is not sharded
    std::shared_ptr<GradientRows> rows = {};
    std::shared_ptr<GradientShare> share = {};
    Communicator box_owners = {};                   // the ranks that hold the other boxes of the parameters
    Communicator stages = {};                       // the ranks that hold the other stages of the model
    std::shared_ptr<MemoryResource> resource = {};  // if null, the range creates one
    layout::Residence states = {};                  // the kind of memory in which make_twin() makes tensors
  };
  ParameterRange(Memory memory, std::vector<Segment> segments);

  const at::Tensor& values() const { return memory_->values; }
  const at::Tensor& gradients() const { return memory_->gradients; }
  const std::vector<Segment>& segments() const { return *segments_; }
  std::size_t size() const { return segments_->size(); }
  // The number of the parameters' elements, without spare elements.
  std::int64_t numel() const;

  // This rank changes the elements [begin(), end()) of the flat buffers. These are all elements if the range is not
  // sharded.
  std::int64_t begin() const { return begin_; }
  std::int64_t end() const { return end_; }
  at::Tensor own_part(const at::Tensor& flat) const { return flat.narrow(0, begin_, end_ - begin_); }
  // The part of a segment's parameter, or of its box, that lies within [begin(), end()). The part may be empty.
  layout::Part part_of(const Segment& segment) const;

  // is_divided() says whether ranks shard the range. is_common() says whether all ranks share the memory of its values.
  bool is_divided() const { return sharing().shares().has_value(); }
  bool is_common() const { return sharing().is_common(); }
  // Which ranks shard the range, and how each of these ranks sees the changes that the others make.
  RangeValues& sharing() const { return *memory_->sharing; }
  // If all ranks share the memory of the values, data_parallel() checks that only code that calls note_change() has
  // changed them. Every rank must call note_change() after a change and a barrier, even if only one rank made the
  // change. The optimizers and averages of reigen::optim call it.
  void note_change() const { sharing().note_change(); }

  // If each rank gets only its share of the averaged gradients, either rows() or share() is not null. With rows() the
  // rank computes its share from memory in which all ranks' gradients lie. With share() the ranks send each other
  // gradients. If every rank gets all averaged gradients, both are null.
  const std::shared_ptr<GradientRows>& rows() const { return memory_->rows; }
  const std::shared_ptr<GradientShare>& share() const { return memory_->share; }
  bool divides_averages() const { return rows() != nullptr || share() != nullptr; }

  // The ranks that together hold the boxes of a whole parameter (Segment::box). Only this rank if parameters are whole.
  const Communicator& box_owners() const { return memory_->box_owners; }
  // The ranks that together hold all stages of the model, each its own parameters (pipeline parallelism). Only this
  // rank if there is one stage.
  const Communicator& stages() const { return memory_->stages; }

  // Returns a tensor of zeros with as many elements as `values`, for an optimizer state. If the range is divided among
  // ranks, each rank uses only own_part() of the tensor. If all ranks share the memory of the values, they also share
  // the memory of this tensor, and make_twin() is collective. Otherwise only own_part() of the tensor takes memory.
  at::Tensor make_twin(at::ScalarType type) const;
  MemoryResource& resource() const { return *memory_->resource; }

  // True if the `.grad` of the segment's parameter is defined.
  bool is_active(std::size_t segment) const;
  // The buffer in which gradients lie. gradient_slot() returns views of this buffer, or of a spare block: memory
  // outside of the buffer, into which backward may write a large gradient (take_gradient()).
  const at::Tensor& gradient_flat() const;
  // True if `.grad` is defined and lies in gradient_slot().
  bool is_in_place(std::size_t segment) const;
  // The segment's slot: a tensor of the parameter's shape in the memory that is reserved for its gradient. The slot
  // contains the gradient only if is_in_place() is true.
  const at::Tensor& gradient_slot(std::size_t segment) const { return (*slots_)[segment]; }

  // Copies the segment's gradient into its slot, and lets `.grad` refer to the slot, so that the original tensor is
  // freed. Does nothing if the gradient lies in the slot already, or if `.grad` is undefined. It costs one pass at
  // most. Accepts any strides, sparse gradients, and gradients with a graph (the graph is lost). Throws InvalidArgument
  // when the gradient does not have the parameter's shape.
  void gather_gradient(std::size_t segment) const;
  // As gather_gradient(), for a gradient that a backward has just made. If the gradient lies in a spare block, it is
  // not copied: the block becomes the slot, and the old slot becomes the spare block. After take_gradient(), the ranks
  // must tell each other the places of their gradients before the next step (GradientRows).
  void take_gradient(std::size_t segment) const;
  void gather_gradients() const;  // calls gather_gradient() for every segment

  // Makes the `.grad` of every parameter undefined. So the next backward has no old gradients to add to, and no memory
  // needs to be zeroed.
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
