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
  at::Tensor given = range.gradient_flat();
  const bool rounds = type_ && given.scalar_type() == at::kFloat;
  if (rounds) part.rounded = given = given.to(*type_);
  part.arrived = adds || rounds ? at::empty_like(own, given.scalar_type()) : at::Tensor();
  part.work = sharers_.reduce_scatter_v(given.const_data_ptr(),
                                        (part.arrived.defined() ? part.arrived : own).mutable_data_ptr(),
                                        range.sharing().shares()->sizes(), tensor::to_data_type(given.scalar_type()),
                                        ReduceOp::kAvg, beside_backward(sharers_, bucket.tag));
  bytes_ += given.nbytes();
}

void GradientShares::collect(const GradientBucket& bucket) {
  Part& part = parts_[bucket.index];
  std::exchange(part.work, Work()).wait();
  part.rounded.reset();
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
  for (std::size_t i = 0; i < part.range->size(); ++i) {
    const tensor::Segment& segment = part.range->segments()[i];
    const layout::Part own = part.range->part_of(segment);
    if (own.count == 0) continue;
    const std::int64_t begin = segment.offset + own.first;
    const at::Tensor arrived = part.arrived.narrow(0, begin - part.range->begin(), own.count);
    at::Tensor mean = part.range->gradients().narrow(0, begin, own.count);
    if (part.added[i] != 0)
      mean.add_(arrived);
    else
      mean.copy_(arrived);
  }
  part.arrived.reset();
}

}  // namespace reigen::parallel
