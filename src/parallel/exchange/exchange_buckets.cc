#include "parallel/exchange/exchange_buckets.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "parallel/exchange/bucket_plan.h"
#include "reigen/base/bytes.h"

namespace reigen::parallel {
namespace {

constexpr std::size_t kSmallBucketBytes = kMiB;

void write_flag(char* place, at::ScalarType type, bool value) {
  const auto write = [&](auto number) { std::memcpy(place, &number, sizeof(number)); };
  const float number = value ? 1.0F : 0.0F;
  switch (type) {
    case at::kHalf: return write(at::Half(number));
    case at::kBFloat16: return write(at::BFloat16(number));
    case at::kFloat: return write(number);
    default: return write(static_cast<double>(number));
  }
}

// Whether some rank has set the flag. After the exchange the flag is the average of the ranks' ones and zeros. If one
// rank wrote a one, this average is above zero in every element type.
bool read_flag(const char* place, at::ScalarType type) {
  const auto bytes = c10::elementSize(type);
  return std::any_of(place, place + bytes, [](char byte) { return byte != 0; });
}

}  // namespace

ExchangeBuckets::ExchangeBuckets(Communicator world, TrainedParameters trained, GradientStrategy& strategy,
                                 std::optional<WeightSample> sample, const BucketOptions& options)
    : world_(std::move(world)),
      trained_(std::move(trained)),
      strategy_(strategy),
      options_(options),
      queue_(world_, trained_.size(), std::move(sample)) {
  const bool is_on_gpu = trained_.ranges.front().gradients().is_cuda();
  if (!strategy.keeps_zeros() || is_on_gpu) flags_.emplace(world_, trained_.size(), is_on_gpu);
  cut(trained_.last_first());
}

void ExchangeBuckets::cut(const std::vector<std::size_t>& order) {
  // Without overlap, small buckets bring no advantage.
  const auto limit =
      options_.overlap ? static_cast<std::size_t>(options_.megabytes * static_cast<double>(kMiB)) : SIZE_MAX;
  std::vector<BucketQueue::Bucket> buckets;
  given_.clear();
  for (const BucketPlan& plan :
       plan_buckets(trained_.places_of(order), limit, options_.overlap ? kSmallBucketBytes : SIZE_MAX)) {
    const ParameterRange& range = trained_.ranges[plan.range];
    GradientBucket& given = given_.emplace_back();
    given.index = given_.size() - 1;
    for (const BucketPlan::Run& run : plan.runs()) {
      const tensor::Segment& first = range.segments()[run.first];
      const tensor::Segment& last = range.segments()[run.last];
      given.runs.push_back(range.gradient_flat().narrow(0, first.offset, last.offset + last.numel + 1 - first.offset));
    }
    BucketQueue::Bucket& bucket = buckets.emplace_back();
    for (const std::size_t segment : plan.segments) {
      bucket.parameters.push_back(trained_.index[plan.range][segment]);
      given.gradients.push_back(range.gradient_slot(segment));
      given.names.push_back(range.segments()[segment].name);
      bucket.bytes += given.gradients.back().nbytes();
    }
    bucket.first = given.names.front();
    bucket.last = given.names.back();
  }
  queue_.set(std::move(buckets));
}

void ExchangeBuckets::take(std::size_t parameter) {
  queue_.require_not_started(parameter, trained_.segment_of(parameter).name);
  trained_.range_of(parameter).take_gradient(trained_.places[parameter].segment);
}

void ExchangeBuckets::ready(std::size_t parameter) {
  queue_.complete(parameter);
  while (queue_.next_is_complete()) start_next();
  queue_.poll();
}

void ExchangeBuckets::start_next() {
  queue_.start_next([this](std::size_t i) {
    for (const std::size_t parameter : queue_[i].parameters) fill(parameter);
    given_[i].tag = queue_[i].tag;
    strategy_.begin(given_[i]);
  });
}

void ExchangeBuckets::end_started() {
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    queue_.end(i, [&] { strategy_.end(given_[i]); });
  }
}

void ExchangeBuckets::finish(int first) {
  while (queue_.next() < queue_.size()) start_next();
  if (flags_) flags_->start([this](std::size_t i) { return trained_.has_gradient(i); }, queue_);
  end_started();
  flags_ ? settle_sent_flags() : settle_flags();
  if (!options_.overlap) return;
  // The next backward is expected to complete gradients in the order of this backward.
  if (const auto order = queue_.order_as_they_came(first)) cut(*order);
}

char* ExchangeBuckets::flag_of(std::size_t parameter) const {
  const tensor::Segment& segment = trained_.segment_of(parameter);
  const at::Tensor& flat = trained_.range_of(parameter).gradient_flat();
  return static_cast<char*>(flat.mutable_data_ptr()) + (segment.offset + segment.numel) * flat.element_size();
}

// Sets the parameter's slot and flag to the values that are sent with its bucket.
void ExchangeBuckets::fill(std::size_t parameter) {
  trained_.fill_slot(parameter);
  if (flags_) return;
  write_flag(flag_of(parameter), trained_.range_of(parameter).gradients().scalar_type(),
             trained_.has_gradient(parameter));
}

// If only other ranks have a gradient of a parameter, the parameter gets the common result on this rank too. If no rank
// has a gradient of it, the parameter remains without a gradient.
void ExchangeBuckets::settle_flags() {
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const ParameterRange& range = trained_.range_of(i);
    const at::ScalarType type = range.gradients().scalar_type();
    char* const flag = flag_of(i);
    at::Tensor& gradient = trained_.segment_of(i).parameter.mutable_grad();
    if (!gradient.defined() && read_flag(flag, type)) gradient = range.gradient_slot(trained_.places[i].segment);
    write_flag(flag, type, false);
  }
}

// Does the same as settle_flags() for flags that were sent in a call of their own.
void ExchangeBuckets::settle_sent_flags() {
  const auto has = [this](std::size_t i) { return trained_.has_gradient(i); };
  const std::vector<char> somewhere = flags_->on_any_rank(has);
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    if (has(i)) continue;
    const at::Tensor& slot = trained_.range_of(i).gradient_slot(trained_.places[i].segment);
    // A strategy may return parts of earlier gradients that it had kept back, although no rank has a gradient now.
    const auto comes = [&] { return !strategy_.keeps_zeros() && slot.ne(0).any().item<bool>(); };
    if (somewhere[i] != 0 || comes()) trained_.segment_of(i).parameter.mutable_grad() = slot;
  }
}

}  // namespace reigen::parallel
