#include "parallel/gradient_reducer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "parallel/mesh_fits.h"
#include "parallel/model_check.h"
#include "parallel/unit_gatherer.h"
#include "reigen/base/bytes.h"
#include "reigen/tensor/compute_threads.h"
#include "reigen/tensor/data_type.h"
#include "tensor/away_memory.h"

namespace reigen::parallel {
namespace {

constexpr std::size_t kSmallBucketBytes = kMiB;

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

const char* type_text(std::optional<at::ScalarType> type) { return type ? c10::toString(*type) : "as they are"; }

void check_travelling_type(const char* name, std::optional<at::ScalarType> type, bool may_be, const char* expected) {
  if (!type) return;
  const auto refuse = [&](std::string got, std::string fits) {
    return InvalidArgument(Report{.what = fmt::format("[data_parallel] {} is not possible here", name),
                                  .got = std::move(got),
                                  .expected = std::move(fits),
                                  .fix = "leave it out: what is divided travels as it is"});
  };
  if (*type != at::kBFloat16 && *type != at::kHalf) throw refuse(c10::toString(*type), "at::kBFloat16 or at::kHalf");
  if (!may_be) throw refuse(c10::toString(*type), expected);
}

void check_keepers(const DataParallelOptions& options, int sharers) {
  const int keepers = options.reshard_to;
  if (keepers == 0) return;
  const bool may_be = options.shard == Shard::kParameters && options.reshard_after_forward;
  if (may_be && keepers > 1 && (sharers == 1 || sharers % keepers == 0)) return;
  throw InvalidArgument(
      Report{.what = "[data_parallel] reshard_to is not possible here",
             .got = fmt::format("{} with shard {}, reshard_after_forward {}, ranks that divide: {}", keepers,
                                to_text(options.shard), options.reshard_after_forward, sharers),
             .expected = "2 or more, of which these ranks are a multiple; shard kParameters and reshard_after_forward",
             .fix = "leave it out: what leaves comes again from all"});
}

void check_options(const DataParallelOptions& options, int sharers) {
  check_keepers(options, sharers);
  if (options.backwards_per_reduction < 1) {
    throw InvalidArgument(
        Report{.what = "[data_parallel] backwards_per_reduction (backward_passes_per_step) is out of range",
               .got = fmt::format("{}", options.backwards_per_reduction),
               .expected = "1 or more"});
  }
  const bool divides_weights = options.shard == Shard::kParameters;
  check_travelling_type("gather_type", options.gather_type, divides_weights, "shard kParameters");
  check_travelling_type("reduce_type", options.reduce_type, divides_weights || options.shard == Shard::kGradients,
                        "shard kGradients or kParameters; without one strategy compressed(type)");
  if (options.bucket_mb >= 0 && options.bucket_mb <= kLargestBucketMb) return;
  throw InvalidArgument(Report{.what = "[data_parallel] bucket_mb is out of range",
                               .got = fmt::format("{}", options.bucket_mb),
                               .expected = fmt::format("0 (every parameter alone) to {}", kLargestBucketMb),
                               .fix = "leave it at 25 unless a measurement says otherwise"});
}

const char* buffers_text(BufferPolicy policy) {
  switch (policy) {
    case BufferPolicy::kBroadcast: return "broadcast";
    case BufferPolicy::kAverage: return "average";
    case BufferPolicy::kOwn: return "own";
  }
  return "unknown";
}

[[noreturn]] void refuse_change(const std::string& name, const std::string& what) {
  throw InvalidArgument(Report{.what = fmt::format("[data_parallel] parameter {} {} after data_parallel()", name, what),
                               .expected = "the parameters that the model had when it was wrapped",
                               .fix = "change the model first and wrap it then"});
}

}  // namespace

GradientReducer::GradientReducer(torch::nn::Module& module, Communicator world, const DataParallelOptions& options)
    : module_(module), world_(std::move(world)), options_(options) {
  choose_sharers();
  choose_layout();
  choose_strategy();
  std::vector<std::string> lines = describe_model(module);
  lines.push_back(fmt::format("option bucket_mb: {}", options.bucket_mb));
  lines.push_back(fmt::format("option overlap: {}", options.overlap));
  lines.push_back(fmt::format("option buffers: {}", buffers_text(options.buffers)));
  lines.push_back(fmt::format("option compare_weights: {}", options.compare_weights));
  lines.push_back(fmt::format("option share_cores: {}", options.share_cores));
  lines.push_back(fmt::format("option shard: {}", to_text(options.shard)));
  lines.push_back(fmt::format("option initialize: {}", options.initialize ? "given" : "none"));
  const auto parameters = module.parameters();
  const auto without = std::count_if(parameters.begin(), parameters.end(), tensor::is_away);
  lines.push_back(fmt::format("parameters without memory: {}", without));
  lines.push_back(fmt::format("option offload: {}", options.offload.empty() ? "none" : "a directory"));
  if (options.shard == Shard::kParameters) {
    lines.push_back(fmt::format("option reshard_after_forward: {}", options.reshard_after_forward));
  }
  lines.push_back(fmt::format("option reshard_to: {}", options.reshard_to));
  lines.push_back(fmt::format("option gather_type: {}", type_text(options.gather_type)));
  lines.push_back(fmt::format("option reduce_type: {}", type_text(options.reduce_type)));
  if (options.mesh) lines.push_back(fmt::format("option mesh: {}", options.mesh->to_text()));
  for (const nn::Unit& unit : options.units) lines.push_back(fmt::format("unit {}", unit.name()));
  lines.push_back(fmt::format("option backwards_per_reduction: {}", options.backwards_per_reduction));
  if (strategy_) lines.push_back(fmt::format("option strategy: {}", strategy_->description()));
  check_equal_on_all_ranks(lines, world_);
  if (options.share_cores) tensor::share_cores(world_);
  // What follows fails on every rank alike.
  check_options(options, sharers_.size());
  check_wrapped_once(module);
  const std::vector<tensor::NamedParameter> all = tensor::named_parameters(module);
  const auto is_trainable = [](const tensor::NamedParameter& entry) { return entry.parameter.requires_grad(); };
  if (std::none_of(all.begin(), all.end(), is_trainable)) {
    throw InvalidArgument(Report{.what = "[data_parallel] the model has nothing to train",
                                 .got = fmt::format("{} parameters, none of which requires a gradient", all.size()),
                                 .expected = "at least one trainable parameter",
                                 .fix = "register parameters, or use the model without data_parallel"});
  }
  prepare_values(all);
  pack(all);
  complete_values(all);
  for (const tensor::NamedParameter& entry : all) {
    known_.push_back({entry.name, entry.parameter, entry.parameter.storage().unsafeGetStorageImpl(),
                      entry.parameter.requires_grad()});
  }
  list_parameters();
  if (options.compare_weights && weights_are_equal()) sample_.emplace(ranges());
  broadcast_values(module);
  if (strategy_) strategy_->attach(ranges());
}

GradientReducer::~GradientReducer() {
  for (const auto& [parameter, hook] : hooks_) parameter.remove_hook(hook);
  for (const Parameter& place : parameters_) {
    const at::Tensor& parameter = ranges()[place.range].segments()[place.segment].parameter;
    const auto& slot = torch::autograd::impl::post_acc_grad_hooks(parameter);
    if (auto* hook = dynamic_cast<GradientHook*>(slot.get()); hook != nullptr && !hook->is_attached()) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, hook->take_users());
    }
  }
  const bool in_flight =
      !stays_ && std::any_of(buckets_.begin(), buckets_.end(), [](const Bucket& bucket) { return bucket.launched; });
  if (!in_flight) return;
  // A failed step: its operations go on with memory that is about to go, and waiting for them could last for ever.
  if (options_.mesh) {
    // Nobody else ends the mesh's groups, in which other ranks may wait for this one.
    for (Communicator* group : {&sharers_, &replicas_}) {
      if (group->size() > 1) group->abort("its data_parallel() was destroyed in the middle of a step");
    }
  } else {
    // Who catches the error ends the group, and tells the others why.
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
  buckets_.clear();
  for (const BucketPlan& plan : plan(places)) {
    Bucket& made = buckets_.emplace_back();
    made.given.index = buckets_.size() - 1;
    const ParameterRange& range = ranges()[plan.range];
    for (const BucketPlan::Run& run : plan.runs()) {
      const tensor::Segment& first = range.segments()[run.first];
      const tensor::Segment& last = range.segments()[run.last];
      made.given.runs.push_back(
          range.gradient_flat().narrow(0, first.offset, last.offset + last.numel + 1 - first.offset));
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

std::vector<BucketPlan> GradientReducer::plan(const std::vector<ParameterPlace>& places) const {
  if (shares_ != nullptr) {
    std::vector<BucketPlan> plans = plan_ranges(places);
    // What is of no unit starts behind backward.
    const auto is_of_unit = [&](const BucketPlan& one) { return flat_->units()[one.range] < options_.units.size(); };
    if (gatherer_) std::stable_partition(plans.begin(), plans.end(), is_of_unit);
    return plans;
  }
  // Without overlap nothing is gained by small ones.
  const auto limit =
      options_.overlap ? static_cast<std::size_t>(options_.bucket_mb * static_cast<double>(kMiB)) : SIZE_MAX;
  return plan_buckets(places, limit, options_.overlap ? kSmallBucketBytes : SIZE_MAX);
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
  if (ranges().empty() || !ranges().front().is_divided()) broadcast_weights("parameters of rank 0", 0);
  std::set<const at::TensorImpl*> divided;
  for (const ParameterRange& range : all_ranges()) {
    for (const tensor::Segment& segment : range.segments()) divided.insert(segment.parameter.unsafeGetTensorImpl());
  }
  std::vector<at::Tensor> frozen;
  for (const Known& known : known_) {
    if (!divided.contains(known.parameter.unsafeGetTensorImpl())) frozen.push_back(known.parameter);
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
    if (shares_ == nullptr) continue;
    const auto before = [weak = weak_from_this(), i](const at::Tensor&) {
      if (const auto reducer = weak.lock()) reducer->before_gradient(i);
    };
    hooks_.emplace_back(parameter, parameter.register_hook(before));
  }
  if (!gatherer_) return;
  gatherer_->attach([weak = weak_from_this()] {
    if (const auto reducer = weak.lock()) reducer->launch_behind();
  });
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
    if (parameter.storage().unsafeGetStorageImpl() != known.storage)
      refuse_change(known.name, "was moved or converted");
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

// Of a backward that failed: it counts.
void GradientReducer::give_up_reduction() {
  if (!active_) return;
  if (!nested_) return reset();
  const auto missing =
      std::find_if(parameters_.begin(), parameters_.end(), [](const Parameter& p) { return !p.ready; });
  const std::string name =
      missing == parameters_.end() ? "" : ranges()[missing->range].segments()[missing->segment].name;
  reset();
  throw InvalidArgument(
      Report{.what = "[data_parallel] the last backward never ended, so its gradients were not averaged",
             .got = fmt::format("no gradient of {}, and none behind a backward within the backward", name),
             .expected = "a gradient of every parameter, or one outside of inner backwards",
             .fix = "use reigen's activation_checkpoint(), which tells of its end, or wrap the optimizer in "
                    "DistributedOptimizer, whose step() ends the reduction"});
}

void GradientReducer::number_step(std::int64_t step) {
  give_up_reduction();
  step_ = step;
}

void GradientReducer::prepare_forward() {
  check_unchanged();
  if (!distributed()) return;
  const bool inside_backward = torch::autograd::get_current_graph_task_id() != -1;
  if (inside_backward) return;  // a recomputation: the reduction is under way
  give_up_reduction();
  drop_idle_rooms();
  if (gatherer_) gatherer_->begin_forward();
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
  if (gatherer_ && !active_) {
    throw InvalidArgument(Report{
        .what = "[data_parallel] synchronize() without a backward, where ranks gather weights (shard parameters)",
        .got = "a rank that does not take part in the others' gathers",
        .expected = "the same units in every rank's forward and backward",
        .fix = "compute a loss of weight 0 on a rank without samples"});
  }
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

}  // namespace reigen::parallel
