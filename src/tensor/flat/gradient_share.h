// Gradients of which a rank keeps only its share of the mean. The gradients have memory from the time when backward
// makes them until they are averaged. After that the range's gradients() hold the share, and `.grad` is a mark: a
// tensor of LibTorch's device "meta", which has a shape and no values. LibTorch refuses to compute with a mark and a
// weight. So an optimizer that knows nothing of shares ends with an error. LibTorch also refuses to change a mark in
// place, except to zero it, if the mark has more than one element.
// Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/flat/transient_flat.h"

namespace reigen::tensor {

class GradientShare {
 public:
  GradientShare(std::int64_t count, at::ScalarType type, const at::Device& device) : made_(count, type, device) {}

  // The memory in which the gradients lie from backward until they are averaged.
  TransientFlat& made() { return made_; }

  // Makes the mark of the next segment (the place of one parameter in the range). Called once for each segment, in
  // order.
  void add_mark(at::IntArrayRef shape);
  bool is_marked(std::size_t segment, const at::Tensor& gradient) const;
  // Sets `.grad` of the parameter to the segment's mark.
  void mark(std::size_t segment, const at::Tensor& parameter);
  // Whether the caller has zeroed the segment's mark in place since mark() set it.
  bool was_zeroed(std::size_t segment) const;
  // If `.grad` is the segment's mark, makes `.grad` undefined. Returns whether `.grad` was the mark and the mark stood
  // for a gradient. A mark that the caller has zeroed in place stands for no gradient.
  bool take_mark(std::size_t segment, const at::Tensor& parameter) const;

 private:
  struct Mark {
    at::Tensor tensor;
    std::int64_t version = 0;  // the tensor's version when mark() set it; each operation in place adds 1
  };
  TransientFlat made_;
  std::vector<Mark> marks_;
};

}  // namespace reigen::tensor
