// Gradients that are averaged in the optimizer's step, and not exchanged in buckets. Each rank's gradients lie in
// memory that all ranks of the machine can read. A rank's step averages its share of the gradients while it reads them.
//
// Row q of `rows` begins with the gradients of rank q, in the layout of the range. The spare blocks of rank q come
// after them. Backward may make a large gradient in a spare block. Such a gradient remains in the block, and not at the
// parameter's place in the row (spare_blocks.h). So the ranks exchange the places of their gradients after every
// backward (set_places()). Thread rule: one thread at a time; several threads may call average_into() for different
// elements.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "reigen/tensor/range_values.h"
#include "tensor/hooks/spare_blocks.h"

namespace reigen::tensor {

class GradientRows {
 public:
  // `shares` says how the ranks divide the range. `spares` are the spare blocks of this rank, or null if it has none. A
  // segment is the place of one parameter in the range. offsets[i] is the index at which segment i begins in the range.
  GradientRows(at::Tensor rows, const Shares& shares, std::shared_ptr<SpareBlocks> spares,
               const std::vector<std::int64_t>& offsets);

  const std::shared_ptr<SpareBlocks>& spares() const { return spares_; }
  // Whether the rows are too large for the CPU's caches.
  bool outgrows_caches() const;

  // Whether the gradients are still this rank's own, and this rank's share of the mean is not computed yet.
  bool awaits_average() const { return awaits_average_; }
  void set_awaits_average(bool awaits) { awaits_average_ = awaits; }

  // Returns where in this rank's row the gradient `slot` begins, in elements.
  std::int64_t place_of(const at::Tensor& slot) const;
  // places[q · segments + i] says where in row q the gradient of segment i begins, in elements.
  void set_places(std::vector<std::int64_t> places);

  // For i < count, sets mean[i] to the mean over all ranks of element first + i of the segment's gradient. The mean has
  // the same bits as that of an all_reduce. `slot` is this rank's gradient.
  void average_into(std::size_t segment, const at::Tensor& slot, std::int64_t first, std::int64_t count,
                    void* mean) const;
  // Computes the same mean and writes it over this rank's gradient.
  void average(std::size_t segment, const at::Tensor& slot, std::int64_t first, std::int64_t count) const;

 private:
  at::Tensor rows_;
  int rank_;
  std::shared_ptr<SpareBlocks> spares_;
  std::vector<std::int64_t> offsets_;
  std::int64_t begin_;  // this rank's share of the range: elements [begin_, end_)
  std::int64_t end_;
  std::vector<std::int64_t> places_;
  bool awaits_average_ = false;
};

}  // namespace reigen::tensor
