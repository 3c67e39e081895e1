#include "parallel/strategies/gradient_shares.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "parallel/strategies/average.h"
#include "reigen/tensor/data_type.h"

namespace reigen::parallel {

void GradientShares::begin(const ParameterRange& range, std::vector<char> added, const GradientBucket& bucket) {
  parts_.resize(std::max(parts_.size(), bucket.index + 1));
  Part& part = parts_[bucket.index];
  part.range = &range;
  part.added = std::move(added);
  const bool adds = std::any_of(part.added.begin(), part.added.end(), [](char one) { return one != 0; });
  const at::Tensor own = range.own_part(range.gradients());
  part.arrived = adds ? at::empty_like(own) : at::Tensor();
  std::vector<std::size_t> counts;
  const std::vector<std::int64_t>& bounds = range.share().bounds;
  for (std::size_t q = 0; q + 1 < bounds.size(); ++q) {
    counts.push_back(static_cast<std::size_t>(bounds[q + 1] - bounds[q]));
  }
  const at::Tensor& made = range.gradient_flat();
  part.work = sharers_.reduce_scatter_v(made.const_data_ptr(), (adds ? part.arrived : own).mutable_data_ptr(), counts,
                                        tensor::to_data_type(made.scalar_type()), ReduceOp::kAvg,
                                        beside_backward(sharers_, bucket.tag));
  bytes_ += made.nbytes();
}

void GradientShares::collect(const GradientBucket& bucket) {
  Part& part = parts_[bucket.index];
  std::exchange(part.work, Work()).wait();
  if (replicas_.size() == 1) return;
  const at::Tensor mean = part.arrived.defined() ? part.arrived : part.range->own_part(part.range->gradients());
  part.work = begin_average(replicas_, {mean}, bucket.tag);
  bytes_ += mean.nbytes();
}

void GradientShares::end(const GradientBucket& bucket) {
  Part& part = parts_[bucket.index];
  std::exchange(part.work, Work()).wait();
  if (!part.arrived.defined()) return;
  const at::NoGradGuard no_grad;
  const tensor::Share& share = part.range->share();
  for (std::size_t i = 0; i < part.range->size(); ++i) {
    const tensor::Segment& segment = part.range->segments()[i];
    const std::int64_t first = std::max(segment.offset, share.begin);
    const std::int64_t count = std::min(segment.offset + segment.numel, share.end) - first;
    if (count <= 0) continue;
    const at::Tensor arrived = part.arrived.narrow(0, first - share.begin, count);
    at::Tensor mean = part.range->gradients().narrow(0, first, count);
    if (part.added[i] != 0)
      mean.add_(arrived);
    else
      mean.copy_(arrived);
  }
  part.arrived.reset();
}

}  // namespace reigen::parallel
