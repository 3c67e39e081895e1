#include "parallel/exchange/bucket_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "parallel/exchange/gradients_named.h"
#include "reigen/base/error.h"

namespace reigen::parallel {
namespace {

std::int64_t now() { return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

BucketQueue::BucketQueue(Communicator world, std::size_t parameters, std::optional<WeightSample> sample)
    : world_(std::move(world)), sample_(std::move(sample)), bucket_of_(parameters) {}

void BucketQueue::set(std::vector<Bucket> buckets) {
  buckets_ = std::move(buckets);
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    for (const std::size_t parameter : buckets_[i].parameters) bucket_of_[parameter] = i;
  }
}

void BucketQueue::begin(const Round& round) {
  round_ = round;
  next_ = 0;
  arrival_.clear();
  for (Bucket& bucket : buckets_) {
    bucket.pending = bucket.parameters.size();
    bucket.is_started = false;
  }
}

void BucketQueue::complete(std::size_t parameter) {
  --buckets_[bucket_of_[parameter]].pending;
  arrival_.push_back(parameter);
}

void BucketQueue::require_not_started(std::size_t parameter, const std::string& name) const {
  if (!of(parameter).is_started) return;
  throw InvalidArgument(Report{
      .what = fmt::format("[data_parallel] parameter {} got a second gradient after its bucket was sent", name),
      .expected = "one gradient in a backward",
      .fix = "parameters used in several checkpointed parts, outside of the unit that has them, or by forwards of "
             "several backwards ago, need DataParallelOptions{.overlap = false}"});
}

void BucketQueue::name_difference(const std::function<void()>& body) const {
  try {
    body();
  } catch (const CollectiveMismatch& error) {
    throw_if_weights_differ(error.what(), buckets_.front().label);
    throw;
  }
}

void BucketQueue::start_next(const std::function<void(std::size_t)>& body) {
  const std::size_t i = next_++;
  Bucket& bucket = buckets_[i];
  bucket.label = tag(fmt::format("bucket {}", i));
  bucket.tag = bucket.label;
  if (i == 0 && sample_ && round_.compares_weights) bucket.tag += " " + sample_->text(round_.step);
  bucket.is_started = true;
  if (i == 0) times_.clear();
  times_.push_back(
      {.tag = bucket.tag, .bytes = bucket.bytes, .parameters = bucket.parameters.size(), .complete = now()});
  name_difference([&] { body(i); });
}

void BucketQueue::end(std::size_t i, const std::function<void()>& body) {
  Bucket& bucket = buckets_[i];
  if (!bucket.is_started) return;
  times_[i].waited_from = now();
  name_difference([&] { with_gradients_named(bucket.label, bucket.first, bucket.last, body); });
  times_[i].waited_to = now();
  bucket.is_started = false;
}

bool BucketQueue::any_is_started() const {
  return std::any_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) { return bucket.is_started; });
}

void BucketQueue::poll() {
  if (next_ == 0) return;
  name_difference([&] { world_.poll(); });
}

std::optional<std::vector<std::size_t>> BucketQueue::order_as_they_came(int first) {
  if (was_ordered_ || buckets_.size() < 2) return std::nullopt;
  std::vector<std::int32_t> order;
  std::vector<bool> came(bucket_of_.size());
  for (const std::size_t i : arrival_) {
    order.push_back(static_cast<std::int32_t>(i));
    came[i] = true;
  }
  for (std::size_t i = came.size(); i-- > 0;) {
    if (!came[i]) order.push_back(static_cast<std::int32_t>(i));
  }
  constexpr std::int32_t kUnknown = -1;
  if (arrival_.empty()) std::fill(order.begin(), order.end(), kUnknown);  // no hook of this rank ran in this round
  world_.broadcast(order.data(), order.size(), DataType::kInt32, first, {.tag = tag("order of gradients")});
  if (order.front() == kUnknown) return std::nullopt;
  was_ordered_ = true;
  return std::vector<std::size_t>(order.begin(), order.end());
}

Work BucketQueue::start_on_any_rank(char* flags, comm::Progress progress) {
  return world_.start_all_reduce(flags, flags, bucket_of_.size(), DataType::kUint8, ReduceOp::kMax,
                                 {.progress = progress, .tag = tag("which parameters have gradients")});
}

std::string BucketQueue::tag(const std::string& what) const { return fmt::format("step {} {}", round_.step, what); }

}  // namespace reigen::parallel
