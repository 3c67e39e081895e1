// Gradients of which a rank keeps the mean of its share alone. They have memory from when backward makes them until
// they are averaged. After that the range's gradients() hold the share, and `.grad` is a mark: NaN everywhere, without
// memory. Thread rule: one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/flat/transient_flat.h"

namespace reigen::tensor {

class GradientShare {
 public:
  GradientShare(std::int64_t count, at::ScalarType type) : made_(count, type) {}

  // Where backward's gradients lie.
  TransientFlat& made() { return made_; }

  // Once for each segment, in order.
  void add_mark(at::IntArrayRef shape);
  bool is_marked(std::size_t segment, const at::Tensor& gradient) const;
  // `.grad` of the parameter is the mark from now on.
  void mark(std::size_t segment, const at::Tensor& parameter) const;
  // `.grad` is undefined from now on. Returns whether it was the mark, and stood for a gradient: a mark that the caller
  // zeroed in place stands for none.
  bool take_mark(std::size_t segment, const at::Tensor& parameter) const;

 private:
  TransientFlat made_;
  std::vector<at::Tensor> marks_;
};

}  // namespace reigen::tensor
