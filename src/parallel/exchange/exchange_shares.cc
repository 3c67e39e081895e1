#include "parallel/exchange/exchange_shares.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "parallel/exchange/bucket_plan.h"
#include "parallel/strategies/average.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/flat/gradient_share.h"

namespace reigen::parallel {
namespace {

// Whether the running backward adds this parameter's gradient to `.grad`. torch::autograd::grad() adds no gradients.
// backward() with chosen inputs adds only some.
bool will_be_added(const at::Tensor& parameter) {
  const auto* const chosen = torch::autograd::get_current_graph_task_exec_info();
  if (chosen == nullptr || chosen->empty()) return true;
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
  const auto found = chosen->find(node.get());
  return found != chosen->end() && found->second.needed_;
}

}  // namespace

ExchangeShares::ExchangeShares(Communicator world, Communicator sharers, Communicator replicas,
                               TrainedParameters trained, std::optional<WeightSample> sample, ShareOptions options)
    : world_(std::move(world)),
      sharers_(std::move(sharers)),
      replicas_(std::move(replicas)),
      trained_(std::move(trained)),
      options_(std::move(options)),
      queue_(world_, trained_.size(), std::move(sample)),
      gradients_(trained_.size()),
      rooms_(sharers_, tensor::stream_of(trained_.ranges.front().values()).device),
      flags_(world_, trained_.size(), trained_.ranges.front().values().is_cuda()) {
  cut(trained_.last_first());
}

void ExchangeShares::cut(const std::vector<std::size_t>& order) {
  std::vector<BucketPlan> plans = plan_ranges(trained_.places_of(order));
  // A range that belongs to no unit may get gradients until the end of backward. Sums start in the order of the queue.
  // If such a range came before other ranges, their sums would have to wait for its sum. So it comes last.
  const auto is_of_unit = [&](const BucketPlan& one) { return options_.unit_of[one.range] < options_.units->size(); };
  if (options_.units) std::stable_partition(plans.begin(), plans.end(), is_of_unit);
  std::vector<BucketQueue::Bucket> buckets;
  sums_.clear();
  for (const BucketPlan& plan : plans) {
    sums_.push_back({.range = plan.range});
    BucketQueue::Bucket& bucket = buckets.emplace_back();
    for (const std::size_t segment : plan.segments) {
      const std::size_t parameter = trained_.index[plan.range][segment];
      bucket.parameters.push_back(parameter);
      bucket.bytes += trained_.places[parameter].bytes;
    }
    bucket.first = trained_.segment_of(bucket.parameters.front()).name;
    bucket.last = trained_.segment_of(bucket.parameters.back()).name;
  }
  queue_.set(std::move(buckets));
}

// Gives back the rooms (the memory of ranges' gradients) of a backward that failed, if the caller has dropped the
// gradients in them.
void ExchangeShares::begin_forward() {
  if (rooms_.has_retired()) {
    tensor::finish_stream_of(trained_.ranges.front().values());
    rooms_.free_retired();
  }
  for (const ParameterRange& range : trained_.ranges) {
    tensor::TransientFlat& made = range.share()->made();
    bool is_used = !made.is_there();
    for (std::size_t i = 0; i < range.size() && !is_used; ++i) is_used = range.is_in_place(i);
    if (!is_used) rooms_.give_back(made.take());
  }
}

void ExchangeShares::before_gradient(std::size_t parameter) {
  const at::Tensor& tensor = trained_.segment_of(parameter).parameter;
  const ParameterRange& range = trained_.range_of(parameter);
  if (!will_be_added(tensor)) return;
  if (range.share()->take_mark(trained_.places[parameter].segment, tensor))
    gradients_[parameter].adds = true;
  else if (!trained_.has_gradient(parameter))
    gradients_[parameter].adds = false;
}

void ExchangeShares::take(std::size_t parameter) {
  queue_.require_not_started(parameter, trained_.segment_of(parameter).name);
  make_room(trained_.places[parameter].range);
  trained_.range_of(parameter).take_gradient(trained_.places[parameter].segment);
}

void ExchangeShares::begin(const Round& round) {
  queue_.begin(round);
  collected_ = 0;
  waited_ = {};
}

void ExchangeShares::ready(std::size_t parameter) {
  queue_.complete(parameter);
  if (options_.starts_in_hooks) {
    while (queue_.next_is_complete()) start_next();
  }
  queue_.poll();
}

bool ExchangeShares::is_due() const {
  if (!options_.overlap || !options_.units || queue_.next() == queue_.size()) return false;
  return options_.units->is_behind(options_.unit_of[sums_[queue_.next()].range]);
}

void ExchangeShares::enter_unit() {
  while (is_due()) start_next();
  // A room is the memory for the gradients of a range. One room is for the unit that backward enters. Over a network,
  // and on a GPU, a second room is for the sum that was started last and is still in flight. In shared memory of the
  // CPU this thread must compute the sums itself, sooner or later. It does so now, while the gradients may still be in
  // the caches.
  const bool sums_here = sharers_.shares_memory() && trained_.ranges.front().values().is_cpu();
  const std::size_t on_its_way = sums_here ? 0 : 1;
  const auto start = std::chrono::steady_clock::now();
  while (collected_ + on_its_way < queue_.next()) {
    const std::size_t i = collected_;
    if (!options_.units->is_behind(options_.unit_of[sums_[i].range])) break;
    collect(i);
  }
  waited_ += std::chrono::steady_clock::now() - start;
}

void ExchangeShares::make_room(std::size_t index) {
  const ParameterRange& range = trained_.ranges[index];
  tensor::TransientFlat& made = range.share()->made();
  if (made.is_there()) return;
  if (!options_.units) collect_completed();
  made.put(rooms_.take(made.bytes()));
  // The gaps between parameters are summed too, so they must be zero. On a GPU one launch for all elements takes less
  // time than one for each gap.
  if (made.tensor().is_cuda()) {
    const at::NoGradGuard no_grad;
    at::Tensor(made.tensor()).zero_();
    return;
  }
  const auto size = static_cast<std::int64_t>(range.values().element_size());
  const std::vector<tensor::Segment>& segments = range.segments();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::int64_t end = segments[i].offset + segments[i].numel;
    const std::int64_t next = i + 1 < segments.size() ? segments[i + 1].offset : range.values().numel();
    std::memset(made.data() + end * size, 0, static_cast<std::size_t>((next - end) * size));
  }
}

void ExchangeShares::start_next() {
  queue_.start_next([this](std::size_t i) { start(i); });
}

void ExchangeShares::start(std::size_t bucket) {
  Sum& sum = sums_[bucket];
  const ParameterRange& range = trained_.ranges[sum.range];
  make_room(sum.range);
  sum.added.assign(range.size(), 0);
  for (const std::size_t i : queue_[bucket].parameters) {
    const std::size_t segment = trained_.places[i].segment;
    Gradient& gradient = gradients_[i];
    // is_old: there is a share of the mean from an earlier backward, and no gradient came in this backward. If a
    // gradient came and the caller then dropped it (zero_grad()), the old share is dropped too.
    const bool is_old = range.share()->take_mark(segment, range.segments()[segment].parameter);
    gradient.has = is_old || range.is_active(segment);
    gradient.adds = is_old || (gradient.adds && gradient.has);
    sum.added[segment] = gradient.adds ? 1 : 0;
    trained_.fill_slot(i);
  }
  const bool adds = std::any_of(sum.added.begin(), sum.added.end(), [](char one) { return one != 0; });
  const at::Tensor own = range.own_part(range.gradients());
  at::Tensor given = range.gradient_flat();
  const bool rounds = options_.type && given.scalar_type() == at::kFloat;
  if (rounds) sum.rounded = given = given.to(*options_.type);
  sum.arrived = adds || rounds ? at::empty_like(own, given.scalar_type()) : at::Tensor();
  const Stream after = tensor::stream_of(given);
  sum.work = sharers_.start_reduce_scatter_v(
      given.const_data_ptr(), (sum.arrived.defined() ? sum.arrived : own).mutable_data_ptr(),
      range.sharing().shares()->sizes(), tensor::to_data_type(given.scalar_type()), ReduceOp::kAvg,
      {.progress = beside_backward(sharers_, after.device), .tag = queue_[bucket].tag, .after = after});
  bytes_ += given.nbytes();
}

// Waits until this rank's share of the sum has arrived, and gives back the room (the memory of the range's gradients).
// Buckets must be collected in the same order on all ranks, because collect() starts a call between the replicas.
void ExchangeShares::collect(std::size_t bucket) {
  collected_ = bucket + 1;
  Sum& sum = sums_[bucket];
  const ParameterRange& range = trained_.ranges[sum.range];
  tensor::wait_for(std::exchange(sum.work, Work()), range.gradients());
  sum.rounded.reset();
  if (replicas_.size() > 1) {
    const at::Tensor mean = sum.arrived.defined() ? sum.arrived : range.own_part(range.gradients());
    sum.work = begin_average(replicas_, {mean}, queue_[bucket].tag);
    bytes_ += mean.nbytes();
  }
  // Only gradients in this room are dropped. A gradient that lies elsewhere belongs to a later backward.
  for (const std::size_t i : queue_[bucket].parameters) {
    if (range.is_in_place(trained_.places[i].segment)) trained_.segment_of(i).parameter.mutable_grad().reset();
  }
  rooms_.give_back(range.share()->made().take());
}

// Which sums have completed differs from rank to rank, and collect() may start a call between the replicas. Over NCCL,
// ranks that start calls of two groups in different orders may wait for each other for ever. So on a GPU with replicas
// nothing is collected here; finish() does it.
void ExchangeShares::collect_completed() {
  if (replicas_.size() > 1 && trained_.ranges.front().values().is_cuda()) return;
  while (collected_ < queue_.next() && sums_[collected_].work.is_completed()) collect(collected_);
}

void ExchangeShares::add_arrived(Sum& sum) {
  if (!sum.arrived.defined()) return;
  const at::NoGradGuard no_grad;
  const ParameterRange& range = trained_.ranges[sum.range];
  for (std::size_t i = 0; i < range.size(); ++i) {
    const tensor::Segment& segment = range.segments()[i];
    const layout::Part own = range.part_of(segment);
    if (own.count == 0) continue;
    const std::int64_t begin = segment.offset + own.first;
    const at::Tensor arrived = sum.arrived.narrow(0, begin - range.begin(), own.count);
    at::Tensor mean = range.gradients().narrow(0, begin, own.count);
    if (sum.added[i] != 0)
      mean.add_(arrived);
    else
      mean.copy_(arrived);
  }
  sum.arrived.reset();
}

void ExchangeShares::end_started() {
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    queue_.end(i, [&] {
      if (i >= collected_) collect(i);
      tensor::wait_for(std::exchange(sums_[i].work, Work()), trained_.ranges[sums_[i].range].gradients());
      add_arrived(sums_[i]);
    });
  }
}

void ExchangeShares::finish(int first) {
  while (queue_.next() < queue_.size()) start_next();
  const auto has = [this](std::size_t i) { return gradients_[i].has; };
  flags_.start(has, queue_);
  end_started();
  const std::vector<char> somewhere = flags_.on_any_rank(has);
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    gradients_[i].adds = false;
    if (somewhere[i] == 0) continue;
    trained_.range_of(i).share()->mark(trained_.places[i].segment, trained_.segment_of(i).parameter);
  }
  if (!options_.overlap) return;
  // The next backward is expected to complete gradients in the order of this backward.
  if (const auto order = queue_.order_as_they_came(first)) cut(*order);
}

}  // namespace reigen::parallel
