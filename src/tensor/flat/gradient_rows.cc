#include "tensor/flat/gradient_rows.h"

#include <cstddef>
#include <utility>

#include "base/check.h"
#include "base/machine/cache_size.h"
#include "comm/reduce/reduce.h"
#include "reigen/tensor/data_type.h"

namespace reigen::tensor {

GradientRows::GradientRows(at::Tensor rows, const Shares& shares, std::shared_ptr<SpareBlocks> spares,
                           const std::vector<std::int64_t>& offsets)
    : rows_(std::move(rows)),
      rank_(shares.ranks.rank()),
      spares_(std::move(spares)),
      offsets_(offsets),
      begin_(shares.begin()),
      end_(shares.end()) {
  for (std::int64_t row = 0; row < rows_.size(0); ++row) places_.insert(places_.end(), offsets.begin(), offsets.end());
}

// Gradients in rows that do not fit into the caches are evicted before the step reads them. So it is faster to write
// them by non-temporal stores, because a plain store first reads its cache line.
bool GradientRows::outgrows_caches() const {
  static const std::size_t kCaches = base::last_level_cache_bytes();
  return rows_.nbytes() >= kCaches;
}

std::int64_t GradientRows::place_of(const at::Tensor& slot) const {
  return slot.storage_offset() - rows_.storage_offset() - rank_ * rows_.size(1);
}

void GradientRows::set_places(std::vector<std::int64_t> places) {
  REIGEN_ASSERT(places.size() == places_.size(), "{} places for {}", places.size(), places_.size());
  places_ = std::move(places);
}

void GradientRows::average_into(std::size_t segment, const at::Tensor& slot, std::int64_t first, std::int64_t count,
                                void* mean) const {
  const std::int64_t flat = offsets_[segment] + first;
  REIGEN_ASSERT(flat >= begin_ && flat + count <= end_, "elements {} to {} are not of the share {} to {}", flat,
                flat + count, begin_, end_);
  REIGEN_ASSERT(places_[static_cast<std::size_t>(rank_) * offsets_.size() + segment] == place_of(slot),
                "gradient {} has left the place that was told", segment);
  const auto size = static_cast<std::size_t>(rows_.element_size());
  const auto* const data = static_cast<const std::byte*>(rows_.const_data_ptr());
  std::vector<const std::byte*> inputs;
  for (std::int64_t row = 0; row < rows_.size(0); ++row) {
    const std::int64_t place = places_[static_cast<std::size_t>(row) * offsets_.size() + segment];
    inputs.push_back(data + static_cast<std::size_t>(row * rows_.size(1) + place + first) * size);
  }
  auto* const output = static_cast<std::byte*>(mean);
  comm::reduce::run({.inputs = inputs.data(),
                     .outputs = &output,
                     .input_count = static_cast<int>(inputs.size()),
                     .output_count = 1,
                     .count = static_cast<std::size_t>(count),
                     .type = to_data_type(rows_.scalar_type()),
                     .op = ReduceOp::kAvg});
}

void GradientRows::average(std::size_t segment, const at::Tensor& slot, std::int64_t first, std::int64_t count) const {
  auto* const place = static_cast<std::byte*>(slot.mutable_data_ptr());
  average_into(segment, slot, first, count, place + first * static_cast<std::int64_t>(rows_.element_size()));
}

}  // namespace reigen::tensor
