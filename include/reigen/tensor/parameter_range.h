// A flat range of parameters and its twin of gradients: what optimizers, checkpoints and hashes work on.
//
// `values` and `gradients` are one-dimensional, of one element type and of one layout: segment i holds one parameter at
// [offset, offset + numel) of both. Offsets are multiples of 64 bytes and every segment is followed by at least one
// spare element; what lies between segments is zero whenever no backward is running, so a pass over the whole range is
// harmless.
//
// A parameter's gradient is its `.grad`, as everywhere in LibTorch. It may be undefined (nothing reached the parameter:
// an optimizer leaves it alone), lie in the twin buffer (after a data-parallel backward all do), or be a tensor of its
// own (one rank alone, where a copy would buy nothing). gather_gradients() moves the last kind into the twin.
//
// A range is a handle: copies are the same memory, and it keeps the memory and the parameters alive.
// Thread rule: as for a tensor, one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace reigen::tensor {

struct Segment {
  std::string name;                       // as the module names it: "conv1.weight"
  std::vector<std::string> aliases = {};  // further names of a tied parameter
  std::vector<std::int64_t> shape = {};
  std::int64_t offset = 0;  // in elements
  std::int64_t numel = 0;
  at::Tensor parameter;  // the module's own tensor, a view into `values`
};

class ParameterRange {
 public:
  ParameterRange(at::Tensor values, at::Tensor gradients, std::vector<Segment> segments);

  const at::Tensor& values() const { return values_; }
  const at::Tensor& gradients() const { return gradients_; }
  const std::vector<Segment>& segments() const { return *segments_; }
  std::size_t size() const { return segments_->size(); }
  // Parameters' elements, spare ones not counted.
  std::int64_t numel() const;

  // True if the segment has a gradient.
  bool is_active(std::size_t segment) const;
  // True if it has one and it lies in the twin buffer.
  bool is_in_place(std::size_t segment) const;
  // The segment's place in the twin buffer, with the parameter's shape. What it holds counts only when is_in_place().
  const at::Tensor& gradient_slot(std::size_t segment) const { return (*slots_)[segment]; }

  // Makes the segment's gradient lie in its slot: copies it there and rebinds `.grad`, so that the original dies;
  // nothing to do when it is there. One pass at most. Accepts any strides, sparse gradients and those with a graph
  // (which they lose). Throws InvalidArgument when the gradient's shape is not the parameter's.
  void gather_gradient(std::size_t segment) const;
  void gather_gradients() const;  // of all active segments

  // `.grad` = undefined for every parameter: the next backward's gradient is taken over as it comes, nothing is zeroed.
  void drop_gradients() const;

 private:
  at::Tensor values_;
  at::Tensor gradients_;
  std::shared_ptr<const std::vector<Segment>> segments_;
  std::shared_ptr<const std::vector<at::Tensor>> slots_;
};

}  // namespace reigen::tensor

namespace reigen {
using tensor::ParameterRange;
}  // namespace reigen
