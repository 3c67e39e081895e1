#include "parallel/gradient_reducer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "parallel/gradients_named.h"
#include "parallel/model_check.h"
#include "parallel/strategies/averaged_in_step.h"
#include "reigen/base/bytes.h"
#include "reigen/parallel/strategies.h"
#include "reigen/tensor/data_type.h"

namespace reigen::parallel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSmallBucketBytes = kMiB;
constexpr double kLargestBucketMb = 1 << 20;

// One hook fits on a tensor: a user's own, found there, is kept and called first.
class GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(std::weak_ptr<GradientReducer> reducer, std::size_t index,
               std::unique_ptr<torch::autograd::PostAccumulateGradHook> users)
      : reducer_(std::move(reducer)), index_(index), users_(std::move(users)) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    if (users_) (*users_)(parameter);
    if (const auto reducer = reducer_.lock()) reducer->on_gradient(index_);
  }

  bool is_attached() const { return !reducer_.expired(); }
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> take_users() { return std::move(users_); }

 private:
  std::weak_ptr<GradientReducer> reducer_;
  std::size_t index_;
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> users_;
};

std::int64_t now() { return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(); }

void check_options(const DataParallelOptions& options) {
  if (options.backwards_per_reduction < 1) {
    throw InvalidArgument(
        Report{.what = "[data_parallel] backwards_per_reduction (backward_passes_per_step) is out of range",
               .got = fmt::format("{}", options.backwards_per_reduction),
               .expected = "1 or more"});
  }
  if (options.bucket_mb >= 0 && options.bucket_mb <= kLargestBucketMb) return;
  throw InvalidArgument(Report{.what = "[data_parallel] bucket_mb is out of range",
                               .got = fmt::format("{}", options.bucket_mb),
                               .expected = fmt::format("0 (every parameter alone) to {}", kLargestBucketMb),
                               .fix = "leave it at 25 unless a measurement says otherwise"});
}

StrategyFactory strategy_of(const DataParallelOptions& options) {
  if (options.strategy) return options.strategy;
  return options.shard == Shard::kGradients ? averaged_in_step() : plain();
}

const char* buffers_text(BufferPolicy policy) {
  switch (policy) {
    case BufferPolicy::kBroadcast: return "broadcast";
    case BufferPolicy::kAverage: return "average";
    case BufferPolicy::kOwn: return "own";
  }
  return "unknown";
}

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

[[noreturn]] void refuse_change(const std::string& name, const std::string& what) {
  throw InvalidArgument(Report{.what = fmt::format("[data_parallel] parameter {} {} after data_parallel()", name, what),
                               .expected = "the parameters that the model had when it was wrapped",
                               .fix = "change the model first and wrap it then"});
}

}  // namespace

GradientReducer::GradientReducer(torch::nn::Module& module, Communicator world, const DataParallelOptions& options)
    : module_(module), world_(std::move(world)), options_(options) {
  if (distributed()) strategy_ = strategy_of(options)(world_);
  std::vector<std::string> lines = describe_model(module);
  lines.push_back(fmt::format("option bucket_mb: {}", options.bucket_mb));
  lines.push_back(fmt::format("option overlap: {}", options.overlap));
  lines.push_back(fmt::format("option buffers: {}", buffers_text(options.buffers)));
  lines.push_back(fmt::format("option shard: {}", to_text(options.shard)));
  lines.push_back(fmt::format("option backwards_per_reduction: {}", options.backwards_per_reduction));
  if (strategy_) lines.push_back(fmt::format("option strategy: {}", strategy_->description()));
  check_equal_on_all_ranks(lines, world_);
  // What follows fails on every rank alike.
  check_options(options);
  check_wrapped_once(module);
  std::vector<tensor::NamedParameter> trainable;
  const std::vector<tensor::NamedParameter> all = tensor::named_parameters(module);
  for (const tensor::NamedParameter& entry : all) {
    if (entry.parameter.requires_grad()) trainable.push_back(entry);
  }
  if (trainable.empty()) {
    throw InvalidArgument(Report{.what = "[data_parallel] the model has nothing to train",
                                 .got = fmt::format("{} parameters, none of which requires a gradient", all.size()),
                                 .expected = "at least one trainable parameter",
                                 .fix = "register parameters, or use the model without data_parallel"});
  }
  pack(trainable);
  for (const tensor::NamedParameter& entry : all) {
    known_.push_back({entry.name, entry.parameter, entry.parameter.const_data_ptr(), entry.parameter.requires_grad()});
  }
  list_parameters();
  broadcast_values(module);
  if (strategy_) strategy_->attach(ranges());
}

GradientReducer::~GradientReducer() {
  for (const Parameter& place : parameters_) {
    const at::Tensor& parameter = ranges()[place.range].segments()[place.segment].parameter;
    const auto& slot = torch::autograd::impl::post_acc_grad_hooks(parameter);
    if (auto* hook = dynamic_cast<GradientHook*>(slot.get()); hook != nullptr && !hook->is_attached()) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, hook->take_users());
    }
  }
  const bool in_flight =
      !stays() && std::any_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) { return bucket.launched; });
  // A failed step's operations may still be read by other ranks: waiting could last for ever, so their memory stays.
  if (in_flight) {
    static_cast<void>(flat_.release());
    static_cast<void>(strategy_.release());
  }
}

void GradientReducer::check_wrapped_once(const torch::nn::Module& module) const {
  for (const tensor::NamedParameter& entry : tensor::named_parameters(module)) {
    if (!entry.parameter.requires_grad()) continue;
    const auto* hook = dynamic_cast<GradientHook*>(torch::autograd::impl::post_acc_grad_hooks(entry.parameter).get());
    if (hook == nullptr || !hook->is_attached()) continue;
    throw InvalidArgument(Report{.what = fmt::format("[data_parallel] parameter {} is wrapped already", entry.name),
                                 .fix = "keep the first wrapper, or destroy it before wrapping the model again"});
  }
}

void GradientReducer::list_parameters() {
  // Ranges hold the parameters grouped by type; buckets follow the module's order over all types.
  std::unordered_map<const at::TensorImpl*, std::pair<std::size_t, std::size_t>> where;
  for (std::size_t range = 0; range < ranges().size(); ++range) {
    for (std::size_t i = 0; i < ranges()[range].size(); ++i) {
      where[ranges()[range].segments()[i].parameter.unsafeGetTensorImpl()] = {range, i};
    }
  }
  for (const Known& known : known_) {
    if (!known.trainable) continue;
    const auto [range, segment] = where.at(known.parameter.unsafeGetTensorImpl());
    parameters_.push_back({.range = range, .segment = segment});
  }
  if (!distributed()) return;
  // Roughly as backward will go.
  std::vector<std::size_t> order(parameters_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = order.size() - 1 - i;
  cut_buckets(order);
}

void GradientReducer::cut_buckets(const std::vector<std::size_t>& order) {
  std::vector<ParameterPlace> places;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> index_of;
  for (const std::size_t i : order) {
    const Parameter& parameter = parameters_[i];
    const tensor::Segment& segment = ranges()[parameter.range].segments()[parameter.segment];
    places.push_back({parameter.range, parameter.segment, segment.parameter.nbytes()});
    index_of[{parameter.range, parameter.segment}] = i;
  }
  // Without overlap nothing is gained by small ones.
  const auto limit =
      options_.overlap ? static_cast<std::size_t>(options_.bucket_mb * static_cast<double>(kMiB)) : SIZE_MAX;
  buckets_.clear();
  for (const BucketPlan& plan : plan_buckets(places, limit, options_.overlap ? kSmallBucketBytes : SIZE_MAX)) {
    Bucket& made = buckets_.emplace_back();
    made.given.index = buckets_.size() - 1;
    const ParameterRange& range = ranges()[plan.range];
    for (const BucketPlan::Run& run : plan.runs()) {
      const tensor::Segment& first = range.segments()[run.first];
      const tensor::Segment& last = range.segments()[run.last];
      made.given.runs.push_back(range.gradients().narrow(0, first.offset, last.offset + last.numel + 1 - first.offset));
    }
    for (const std::size_t segment : plan.segments) {
      const std::size_t i = index_of.at({plan.range, segment});
      parameters_[i].bucket = made.given.index;
      made.parameters.push_back(i);
      made.given.gradients.push_back(range.gradient_slot(segment));
      made.given.names.push_back(range.segments()[segment].name);
    }
    made.pending = made.parameters.size();
  }
}

// Once, after the first reduction: what backward does then it does again.
void GradientReducer::cut_buckets_as_gradients_come() {
  if (cut_again_ || buckets_.size() < 2) return;
  cut_again_ = true;
  std::vector<std::int32_t> order;
  std::vector<bool> came(parameters_.size());
  for (const std::size_t i : arrival_) {
    order.push_back(static_cast<std::int32_t>(i));
    came[i] = true;
  }
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    if (!came[i]) order.push_back(static_cast<std::int32_t>(i));
  }
  world_.broadcast(order.data(), order.size(), DataType::kInt32, first_training(), {.tag = tag("order of gradients")});
  cut_buckets({order.begin(), order.end()});
}

void GradientReducer::broadcast_values(const torch::nn::Module& module) {
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : module.buffers()) buffers.push_back(buffer);
  buffers_ = std::make_unique<BufferSync>(buffers, world_);
  if (!distributed()) return;
  if (options_.shard == Shard::kNone) broadcast_weights("parameters of rank 0", 0);
  std::vector<at::Tensor> frozen;
  for (const Known& known : known_) {
    if (!known.trainable) frozen.push_back(known.parameter);
  }
  BufferSync(frozen, world_).broadcast("frozen parameters of rank 0");
  buffers_->broadcast("buffers of rank 0");
}

void GradientReducer::broadcast_weights(const std::string& tag, int root) {
  for (const ParameterRange& range : ranges()) {
    world_.broadcast(range.values().mutable_data_ptr(), static_cast<std::size_t>(range.values().numel()),
                     tensor::to_data_type(range.values().scalar_type()), root, {.tag = tag});
  }
}

void GradientReducer::attach() {
  if (!distributed()) return;  // nothing to average: gradients may stay where backward puts them
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& place = parameters_[i];
    const at::Tensor& parameter = ranges()[place.range].segments()[place.segment].parameter;
    std::unique_ptr<torch::autograd::PostAccumulateGradHook> users;
    // Without a hook this refers to one empty pointer that all tensors and threads share.
    auto& present = torch::autograd::impl::post_acc_grad_hooks(parameter);
    if (auto* stale = dynamic_cast<GradientHook*>(present.get())) {
      users = stale->take_users();
    } else if (present) {
      users = std::move(present);
    }
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameter, std::make_unique<GradientHook>(weak_from_this(), i, std::move(users)));
  }
}

void GradientReducer::check_unchanged() const {
  const std::vector<tensor::NamedParameter> now = tensor::named_parameters(module_);
  for (std::size_t i = 0; i < std::max(now.size(), known_.size()); ++i) {
    if (i >= now.size() || (i < known_.size() && now[i].name != known_[i].name)) {
      const auto known_name = [&](const std::string& name) {
        return std::any_of(known_.begin(), known_.end(), [&](const Known& known) { return known.name == name; });
      };
      if (i < now.size() && !known_name(now[i].name)) refuse_change(now[i].name, "was added");
      refuse_change(known_[i].name, "was removed");
    }
    if (i >= known_.size()) refuse_change(now[i].name, "was added");
    const Known& known = known_[i];
    const at::Tensor& parameter = now[i].parameter;
    if (parameter.unsafeGetTensorImpl() != known.parameter.unsafeGetTensorImpl()) {
      refuse_change(known.name, "was replaced by another tensor");
    }
    if (parameter.const_data_ptr() != known.data) refuse_change(known.name, "was moved or converted");
    if (!known.trainable && parameter.requires_grad()) refuse_change(known.name, "was unfrozen");
  }
}

void GradientReducer::sync_buffers(const std::string& tag) {
  if (options_.buffers == BufferPolicy::kAverage) return average_buffers(tag);
  buffers_->broadcast(tag, first_training());
}

void GradientReducer::require_step_told() const {
  if (!step_is_due_) return;
  throw InvalidArgument(
      Report{.what = fmt::format("[data_parallel] strategy {} was not told of a step", strategy_->description()),
             .got = "a forward after a backward, without after_step() between them",
             .expected = "backward, optimizer.step(), after_step()",
             .fix = "call after_step() behind the optimizer's step; to add up gradients, use no_sync()"});
}

void GradientReducer::after_step() {
  if (!distributed()) return;
  step_is_due_ = false;
  strategy_->after_step();
}

void GradientReducer::settle() {
  if (!distributed()) return;
  strategy_->settle();
  sync_buffers("buffers of all");  // ranks may have made different numbers of backwards
}

std::map<std::string, at::Tensor> GradientReducer::strategy_state() const {
  return strategy_ ? strategy_->state() : std::map<std::string, at::Tensor>();
}

void GradientReducer::load_strategy_state(const std::map<std::string, at::Tensor>& state) {
  if (strategy_) strategy_->load_state(state);
}

void GradientReducer::number_step(std::int64_t step) {
  if (active_) reset();  // of a backward that failed: it counts
  step_ = step;
}

void GradientReducer::prepare_forward() {
  check_unchanged();
  if (!distributed()) return;
  const bool inside_backward = torch::autograd::get_current_graph_task_id() != -1;
  if (inside_backward) return;  // a recomputation: the reduction is under way
  if (active_) reset();
  lend_spare_blocks();
  if (no_sync_depth_ > 0 || only_adds_up()) return;
  prepare_reduction();
}

void GradientReducer::prepare_reduction() {
  require_step_told();
  require_own_steps();
  if (!module_.is_training()) return;  // nothing is brought together, so a step still has it to do
  buffers_are_fresh_ = true;
  if (options_.buffers == BufferPolicy::kOwn || !strategy_->exchanges_gradients() || buffers_->empty()) return;
  announce(Activity::kForward);
  sync_buffers(tag("buffers"));
}

void GradientReducer::synchronize() {
  if (!distributed()) return;
  if (!buffers_are_fresh_) {
    prepare_forward();
    if (no_sync_depth_ == 0 && only_adds_up()) prepare_reduction();  // the others' last forward did
  }
  if (!active_) begin();
  finish();
}

void GradientReducer::start_over() {
  if (active_) reset();
  averaged_ = false;
  accumulated_ = 0;
}

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
  torch::autograd::Engine::get_default_engine().queue_callback([weak = weak_from_this(), owned = std::move(owned)] {
    if (const auto reducer = weak.lock()) reducer->on_backward_end();
  });
}

void GradientReducer::on_gradient(std::size_t index) {
  Parameter& parameter = parameters_[index];
  const ParameterRange& range = ranges()[parameter.range];
  for (const ParameterRange& one : ranges()) one.set_awaits_average(false);  // of the last reduction, after its step
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
               .fix = "parameters used in several checkpointed parts need DataParallelOptions{.overlap = false}"});
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
  if (bucket.pending == 0) launch_ready();
  if (next_bucket_ > 0) world_.poll();
}

void GradientReducer::launch_ready() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0) launch(next_bucket_++);
}

char* GradientReducer::flag_of(const Parameter& parameter) const {
  const ParameterRange& range = ranges()[parameter.range];
  const tensor::Segment& segment = range.segments()[parameter.segment];
  return static_cast<char*>(range.gradients().mutable_data_ptr()) +
         (segment.offset + segment.numel) * range.gradients().element_size();
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
  for (const std::size_t i : bucket.parameters) fill(parameters_[i]);
  bucket.launched = true;
  bucket.given.tag = tag(fmt::format("bucket {}", index).c_str());
  if (index == 0) bucket_times_.clear();
  if (stays()) return strategy_->begin(bucket.given);
  BucketTimes& times = bucket_times_.emplace_back();
  times.tag = bucket.given.tag;
  times.parameters = bucket.parameters.size();
  for (const at::Tensor& gradient : bucket.given.gradients) times.bytes += gradient.nbytes();
  times.complete = now();
  strategy_->begin(bucket.given);
}

std::string GradientReducer::tag(const char* what) const { return fmt::format("step {} {}", step_, what); }

void GradientReducer::on_backward_end() {
  if (!active_) return;
  // A node that is being evaluated now means that this backward runs inside another one, whose gradients are still to
  // come.
  const bool is_nested = torch::autograd::get_current_node() != nullptr;
  if (is_nested && ready_ < parameters_.size()) {
    nested_ = true;
    return;
  }
  if (only_adds_up()) {
    ++accumulated_;
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
  settle_flags();
  correct_for_ended();
  buffers_are_fresh_ = false;
  if (options_.overlap) cut_buckets_as_gradients_come();
  note_averages();
  reset();
  exposed_ = Clock::now() - start;
}

void GradientReducer::end_launched() {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    if (stays()) bucket.launched = false;
    if (!bucket.launched) continue;
    bucket_times_[i].waited_from = now();
    with_gradients_named(bucket.given.tag, bucket.given.names.front(), bucket.given.names.back(),
                         [&] { strategy_->end(bucket.given); });
    bucket_times_[i].waited_to = now();
    bucket.launched = false;
  }
}

// Which parameters have a gradient on some rank, where the strategy does not carry the flags.
std::vector<char> GradientReducer::shared_flags() {
  std::vector<char> flags;
  for (const Parameter& parameter : parameters_) {
    flags.push_back(ranges()[parameter.range].is_active(parameter.segment) ? 1 : 0);
  }
  world_.all_reduce(flags.data(), flags.data(), flags.size(), DataType::kUint8, ReduceOp::kMax,
                    {.tag = tag("which parameters have gradients")});
  return flags;
}

// A gradient that only other ranks had is ours too; one that nobody had stays undefined.
void GradientReducer::settle_flags() {
  const std::vector<char> flags = stays()                    ? exchange_places()
                                  : strategy_->keeps_zeros() ? std::vector<char>()
                                                             : shared_flags();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    const ParameterRange& range = ranges()[parameter.range];
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
