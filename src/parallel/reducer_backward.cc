// What a reduction does while backward runs and at its end: gradients as they come, buckets as they are full.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "parallel/gradient_reducer.h"
#include "parallel/gradients_named.h"
#include "parallel/unit_gatherer.h"
#include "tensor/backward_end.h"
#include "tensor/gradient_rows.h"
#include "tensor/gradient_share.h"

namespace reigen::parallel {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t now() { return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(); }

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

// The average of ones and zeros is above zero in every type as long as one rank wrote a one.
bool read_flag(const char* place, at::ScalarType type) {
  const auto bytes = c10::elementSize(type);
  return std::any_of(place, place + bytes, [](char byte) { return byte != 0; });
}

}  // namespace

void GradientReducer::refuse_another_backward() const {
  throw InvalidArgument(
      Report{.what = "[data_parallel] a backward came after the gradients were averaged and before step()",
             .got = fmt::format("more than {} since the last step()", options_.backwards_per_reduction),
             .expected = fmt::format("{} between two steps", options_.backwards_per_reduction),
             .fix = "call step() and zero_grad() first; to add up gradients, set backward_passes_per_step"});
}

bool GradientReducer::backward_is_alive() const {
  return std::any_of(backwards_.begin(), backwards_.end(), [](const auto& one) { return !one.expired(); });
}

void GradientReducer::begin() {
  active_ = true;
  for (Bucket& bucket : buckets_) {
    bucket.pending = bucket.parameters.size();
    bucket.launched = false;
  }
}

// The graph of a backward owns its callbacks: when it dies early, by an exception, so does the id.
void GradientReducer::queue_callback() {
  const int id = torch::autograd::get_current_graph_task_id();
  for (const auto& one : backwards_) {
    const auto other = one.lock();
    if (other && *other == id) return;
  }
  auto owned = std::make_shared<int>(id);
  backwards_.push_back(owned);
  tensor::at_backward_end([weak = weak_from_this(), owned = std::move(owned)] {
    if (const auto reducer = weak.lock()) reducer->on_backward_end();
  });
}

void GradientReducer::on_gradient(std::size_t index) {
  Parameter& parameter = parameters_[index];
  const ParameterRange& range = ranges()[parameter.range];
  if (gatherer_) gatherer_->require_there(parameter.range, range.segments()[parameter.segment].name);
  for (const ParameterRange& one : ranges()) {
    if (one.rows()) one.rows()->set_awaits_average(false);  // of the last reduction, after its step
  }
  make_room(range);
  if (no_sync_depth_ > 0) {
    range.take_gradient(parameter.segment);
    return;
  }
  if (averaged_ && guards_steps_) refuse_another_backward();
  if (active_ && !nested_ && !backward_is_alive()) reset();
  if (!active_) begin();
  Bucket& bucket = buckets_[parameter.bucket];
  if (bucket.launched) {
    throw InvalidArgument(
        Report{.what = fmt::format("[data_parallel] parameter {} got a second gradient after its bucket was sent",
                                   range.segments()[parameter.segment].name),
               .expected = "one gradient in a backward",
               .fix = "parameters used in several checkpointed parts, or by forwards of several backwards ago, need "
                      "DataParallelOptions{.overlap = false}"});
  }
  queue_callback();
  range.take_gradient(parameter.segment);
  if (parameter.ready) return;
  parameter.ready = true;
  ++ready_;
  --bucket.pending;
  arrival_.push_back(index);
  if (!options_.overlap || !strategy_->exchanges_gradients() || only_adds_up()) return;
  announce_reduction();
  if (bucket.pending == 0 && !gatherer_) launch_ready();
  if (next_bucket_ == 0) return;
  try {
    world_.poll();
  } catch (const CollectiveMismatch& error) {
    throw_if_weights_differ(error.what(), buckets_.front().label);
    throw;
  }
}

void GradientReducer::launch_ready() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0) launch(next_bucket_++);
}

void GradientReducer::launch_behind() {
  if (!options_.overlap || no_sync_depth_ > 0 || only_adds_up()) return;
  if (active_ && !nested_ && !backward_is_alive()) reset();
  const auto next_is_behind = [&] {
    if (next_bucket_ == buckets_.size()) return false;
    return gatherer_->is_behind(parameters_[buckets_[next_bucket_].parameters.front()].range);
  };
  if (!next_is_behind()) return;
  if (averaged_ && guards_steps_) refuse_another_backward();
  if (!active_) begin();
  queue_callback();
  while (next_is_behind()) launch(next_bucket_++);
}

char* GradientReducer::flag_of(const Parameter& parameter) const {
  const ParameterRange& range = ranges()[parameter.range];
  const tensor::Segment& segment = range.segments()[parameter.segment];
  const at::Tensor& flat = range.gradient_flat();
  return static_cast<char*>(flat.mutable_data_ptr()) + (segment.offset + segment.numel) * flat.element_size();
}

// The slot and the flag of a parameter as they must be when its bucket leaves.
void GradientReducer::fill(const Parameter& parameter) {
  const ParameterRange& range = ranges()[parameter.range];
  const bool has_gradient = range.is_active(parameter.segment);
  if (has_gradient) {
    range.take_gradient(parameter.segment);
  } else {
    const at::Tensor& slot = range.gradient_slot(parameter.segment);
    std::memset(slot.mutable_data_ptr(), 0, slot.nbytes());
  }
  write_flag(flag_of(parameter), range.gradients().scalar_type(), has_gradient && strategy_->keeps_zeros());
}

void GradientReducer::launch(std::size_t index) {
  Bucket& bucket = buckets_[index];
  bucket.label = tag(fmt::format("bucket {}", index).c_str());
  bucket.given.tag = bucket.label;
  // A rank whose data has ended steps no more, or with what the others tell it.
  if (index == 0 && sample_ && !roll_call_) bucket.given.tag += " " + sample_->text(step_);
  if (shares_ == nullptr) {
    for (const std::size_t i : bucket.parameters) fill(parameters_[i]);
  }
  bucket.launched = true;
  if (index == 0) bucket_times_.clear();
  if (stays_) return strategy_->begin(bucket.given);
  BucketTimes& times = bucket_times_.emplace_back();
  times.tag = bucket.given.tag;
  times.parameters = bucket.parameters.size();
  for (const at::Tensor& gradient : bucket.given.gradients) times.bytes += gradient.nbytes();
  times.complete = now();
  try {
    shares_ == nullptr ? strategy_->begin(bucket.given) : begin_shares(bucket);
  } catch (const CollectiveMismatch& error) {
    throw_if_weights_differ(error.what(), buckets_.front().label);
    throw;
  }
}

// Gradients are brought together bit by bit alike, so whoever begins alike and steps alike stays alike. Not so where a
// strategy lets weights part; and where ranks have one memory, or shares alone, there is nothing to compare. A file is
// not read for it.
bool GradientReducer::weights_are_equal() const {
  if (!distributed() || strategy_->acts_on_weights() || !options_.offload.empty()) return false;
  return std::all_of(ranges().begin(), ranges().end(), [](const ParameterRange& range) {
    return !range.is_common() && range.sharing().whole() == nullptr;
  });
}

std::string GradientReducer::tag(const char* what) const { return fmt::format("step {} {}", step_, what); }

void GradientReducer::on_backward_end() {
  if (!active_) return;
  // A node that is being evaluated now means that this backward runs inside another one, of which at_backward_end()
  // knows nothing, and whose gradients are still to come.
  const bool is_nested = torch::autograd::get_current_node() != nullptr;
  if (is_nested && ready_ < parameters_.size()) {
    nested_ = true;
    return;
  }
  if (only_adds_up()) {
    ++accumulated_;
    if (gatherer_) gatherer_->release_units();
    return end_backward();
  }
  finish();
}

void GradientReducer::finish() {
  const auto start = Clock::now();
  announce_reduction();
  averaged_ = true;
  step_is_due_ = strategy_->acts_on_weights();
  if (!strategy_->exchanges_gradients()) {
    buffers_are_fresh_ = false;
    reset();
    exposed_ = {};
    return;
  }
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) launch(next_bucket_);
  end_launched();
  if (shares_ != nullptr) {
    for (const Bucket& bucket : buckets_) keep_shares(bucket);
  }
  settle_flags();
  correct_for_ended();
  buffers_are_fresh_ = false;
  if (options_.overlap) cut_buckets_as_gradients_come();
  note_averages();
  reset();
  if (gatherer_) gatherer_->release_units();
  exposed_ = Clock::now() - start + std::exchange(waited_early_, {});
}

void GradientReducer::end_bucket(std::size_t i) {
  Bucket& bucket = buckets_[i];
  if (stays_) bucket.launched = false;
  if (!bucket.launched) return;
  bucket_times_[i].waited_from = now();
  try {
    if (shares_ != nullptr) leave_room(bucket);
    with_gradients_named(bucket.label, bucket.given.names.front(), bucket.given.names.back(),
                         [&] { strategy_->end(bucket.given); });
  } catch (const CollectiveMismatch& error) {
    throw_if_weights_differ(error.what(), buckets_.front().label);
    throw;
  }
  bucket_times_[i].waited_to = now();
  bucket.launched = false;
}

void GradientReducer::end_launched() {
  for (std::size_t i = 0; i < buckets_.size(); ++i) end_bucket(i);
}

// Which parameters have a gradient on some rank, where the strategy does not carry the flags.
std::vector<char> GradientReducer::shared_flags() {
  std::vector<char> flags;
  for (const Parameter& parameter : parameters_) {
    const bool has = shares_ != nullptr ? parameter.has : ranges()[parameter.range].is_active(parameter.segment);
    flags.push_back(has ? 1 : 0);
  }
  world_.all_reduce(flags.data(), flags.data(), flags.size(), DataType::kUint8, ReduceOp::kMax,
                    {.tag = tag("which parameters have gradients")});
  return flags;
}

// A gradient that only other ranks had is ours too; one that nobody had stays undefined.
void GradientReducer::settle_flags() {
  const std::vector<char> flags = stays_                     ? exchange_places()
                                  : strategy_->keeps_zeros() ? std::vector<char>()
                                                             : shared_flags();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    const ParameterRange& range = ranges()[parameter.range];
    if (shares_ != nullptr) {
      if (flags[i] != 0) range.share()->mark(parameter.segment, range.segments()[parameter.segment].parameter);
      continue;
    }
    const at::ScalarType type = range.gradients().scalar_type();
    char* flag = flag_of(parameter);
    // What a strategy had kept back may come though no rank has a gradient now.
    const auto comes = [&] { return range.gradient_slot(parameter.segment).ne(0).any().item<bool>(); };
    const bool somewhere = flags.empty() ? read_flag(flag, type) : flags[i] != 0 || comes();
    at::Tensor& gradient = range.segments()[parameter.segment].parameter.mutable_grad();
    if (!gradient.defined() && somewhere) gradient = range.gradient_slot(parameter.segment);
    write_flag(flag, type, false);
  }
}

// Back to between two reductions. What a failed backward sent is waited for: the other ranks sent it as well, or fail.
void GradientReducer::reset() {
  end_launched();
  end_backward();
  accumulated_ = 0;
  is_announced_ = false;
  ++step_;
}

void GradientReducer::end_backward() {
  for (Parameter& parameter : parameters_) parameter.ready = false;
  arrival_.clear();
  active_ = false;
  nested_ = false;
  ready_ = 0;
  next_bucket_ = 0;
  backwards_.clear();
  stop_lending();
}

}  // namespace reigen::parallel
