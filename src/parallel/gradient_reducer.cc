#include "parallel/gradient_reducer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <utility>

#include "parallel/check/model_check.h"
#include "parallel/check/option_checks.h"
#include "parallel/data_ranks.h"
#include "parallel/exchange/exchange_buckets.h"
#include "parallel/exchange/exchange_in_step.h"
#include "parallel/exchange/exchange_shares.h"
#include "parallel/weights/first_values.h"
#include "parallel/weights/unit_gatherer.h"
#include "reigen/base/error.h"
#include "reigen/parallel/layout_of.h"
#include "reigen/parallel/strategies.h"
#include "reigen/tensor/compute_threads.h"
#include "reigen/tensor/pieces.h"

namespace reigen::parallel {
namespace {

using Clock = std::chrono::steady_clock;

void require_trainable(const std::vector<tensor::NamedParameter>& parameters) {
  for (const tensor::NamedParameter& entry : parameters) {
    if (!entry.parameter.requires_grad() || !BackwardWatch::is_watched(entry.parameter)) continue;
    throw InvalidArgument(Report{.what = fmt::format("[data_parallel] parameter {} is wrapped already", entry.name),
                                 .fix = "keep the first wrapper, or destroy it before wrapping the model again"});
  }
  const auto is_trainable = [](const tensor::NamedParameter& entry) { return entry.parameter.requires_grad(); };
  if (std::any_of(parameters.begin(), parameters.end(), is_trainable)) return;
  throw InvalidArgument(
      Report{.what = "[data_parallel] the model has nothing to train",
             .got = fmt::format("{} parameters, none of which requires a gradient", parameters.size()),
             .expected = "at least one trainable parameter",
             .fix = "register parameters, or use the model without data_parallel"});
}

// Whether the running backward adds all gradients to `.grad`. torch::autograd::grad() adds none, and backward() with
// chosen inputs adds only some.
bool adds_all_gradients() {
  const auto* const chosen = torch::autograd::get_current_graph_task_exec_info();
  return chosen != nullptr && chosen->empty();
}

}  // namespace

GradientReducer::GradientReducer(torch::nn::Module& module, Communicator world, const DataParallelOptions& options)
    : module_(options.pipeline ? options.pipeline.module() : module), options_(options) {
  DataRanks ranks = data_ranks(options, world);
  groups_ = std::move(ranks.groups);
  world_ = groups_.world;
  layout_ = layout_inputs(module, world, options_).choose();
  coordinates_ = std::move(ranks.here);
  choose_strategies();
  compare_between_ranks();
  if (options.share_cores) tensor::share_cores(groups_.all);
  // If one of the checks that follow fails, it fails on every rank.
  check_options(options, groups_.sharers.size());
  const std::vector<tensor::NamedParameter> all = tensor::named_parameters(module_);
  require_trainable(all);
  require_device_possible(module_, options_, groups_.all, {gradient_strategy_.get(), weight_strategy_.get()});
  FirstValues values(module_, world_, groups_.sharers, groups_.replicas, options.tensor_parallel, options.initialize);
  values.prepare(all);
  pack(all, values);
  place_weights();
  require_stages_possible(options_, gathers());
  values.complete(all, ranges(), all_ranges(), gathers());
  guard_ = std::make_unique<ModelGuard>(module_);
  trained_ = trained_parameters(ranges(), guard_->trainable());
  buffers_ = std::make_unique<BufferSync>(module_.buffers(), world_);
  watch_ = std::make_shared<BackwardWatch>(guard_->trainable());
  if (!distributed()) return;  // nothing to average: gradients may remain where backward puts them
  choose_exchange();
  values.broadcast(guard_->all(), ranges(), all_ranges());
  buffers_->broadcast("buffers of rank 0");
  if (gradient_strategy_) gradient_strategy_->attach(ranges());
  if (weight_strategy_) weight_strategy_->attach(ranges());
  attach();
}

GradientReducer::~GradientReducer() {
  if (units_) units_->detach();
  if (!exchange_ || !exchange_->is_under_way()) return;
  // A step has failed. Its calls still use memory that is about to be freed. A wait for these calls could take for
  // ever.
  if (options_.mesh || options_.tensor_parallel || options_.pipeline || options_.context_parallel) {
    // The caller has no handle of the mesh's groups, in which other ranks may wait for this one. Aborting one group of
    // the mesh aborts all of them.
    if (groups_.world.size() > 1) groups_.world.abort("its data_parallel() was destroyed in the middle of a step");
  } else {
    // The code that catches the error aborts the group with the error's reason. Until then calls may use the memory of
    // these three objects, so the objects are leaked.
    static_cast<void>(flat_.release());
    static_cast<void>(exchange_.release());
    static_cast<void>(gradient_strategy_.release());
  }
}

// ---- Choices made once

bool GradientReducer::gradients_are(layout::AlongKind kind) const {
  for (std::size_t i = 0; i < layout_.model().tensors.size(); ++i) {
    if (layout_.model().tensors[i].trainable) return layout_.placement(i, layout::Role::kGradient).has(kind);
  }
  return false;
}

void GradientReducer::choose_strategies() {
  if (!distributed()) return;
  if (options_.strategy.weights) weight_strategy_ = options_.strategy.weights(world_);
  const bool travel_in_buckets =
      !gradients_are(layout::AlongKind::kPartial) && !gradients_are(layout::AlongKind::kFlat);
  if (options_.strategy.gradients) {
    gradient_strategy_ = options_.strategy.gradients(world_);
  } else if (travel_in_buckets || options_.strategy) {
    gradient_strategy_ = plain().gradients(world_);
  }
}

void GradientReducer::compare_between_ranks() {
  std::vector<std::string> lines = describe_model(module_);
  for (std::string& line : describe_options(options_, module_)) lines.push_back(std::move(line));
  if (gradient_strategy_) lines.push_back("option strategy: " + gradient_strategy_->description());
  if (weight_strategy_) lines.push_back("option strategy: " + weight_strategy_->description());
  check_equal_on_all_ranks(lines, world_);
  // Ranks that divide the model have other tensors. Their options must be the same too.
  if (options_.tensor_parallel || options_.pipeline) check_equal_on_all_ranks(describe_options(options_), groups_.all);
}

// `own`: the parameters of this rank, which has those of its stages only if there is a pipeline.
void GradientReducer::pack(const std::vector<tensor::NamedParameter>& own, FirstValues& values) {
  const std::string strategy = weight_strategy_     ? weight_strategy_->description()
                               : gradient_strategy_ ? gradient_strategy_->description()
                                                    : "of the shard";
  require_shard_possible(options_, world_, strategy);
  const std::vector<tensor::NamedParameter> parameters = as_in_layout(own, layout_, coordinates_);
  std::vector<tensor::NamedParameter> packed;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].parameter.defined() && layout_.is_packed(i)) packed.push_back(parameters[i]);
  }
  values.begin_as_first_replica(packed);
  flat_ = std::make_unique<tensor::FlatParameters>(
      parameters, layout_, coordinates_,
      tensor::FlatOptions{.sharers = groups_.sharers,
                          .box_owners = groups_.box_owners,
                          .stages = groups_.stages,
                          .offload = options_.offload,
                          .fill = [&values](const at::Tensor& parameter) { values.fill(parameter); }});
}

// If weights are divided among ranks, or gradients are divided unit by unit, a UnitWatch reports which unit a backward
// enters.
void GradientReducer::place_weights() {
  const std::vector<ParameterRange> all = all_ranges();
  const bool are_shares = all.front().sharing().whole() != nullptr;
  const bool gradients_travel_in_shares = distributed() && gradients_are(layout::AlongKind::kFlat);
  if (are_shares || (gradients_travel_in_shares && !options_.units.empty())) {
    units_ = std::make_shared<UnitWatch>(options_.units);
  }
  if (!are_shares) {
    weights_ = std::make_shared<WeightsInPlace>();
    return;
  }
  std::vector<std::size_t> unit_of;
  for (const std::size_t unit : flat_->units()) unit_of.push_back(std::min(unit, units_->size()));
  auto gatherer = std::make_shared<UnitGatherer>(groups_.sharers, units_, all, unit_of,
                                                 GatherOptions{.release_after_forward = options_.reshard_after_forward,
                                                               .keepers = options_.reshard_to,
                                                               .type = options_.gather_type});
  gatherer->attach();
  weights_ = std::move(gatherer);
}

// Whether all ranks hold equal weights that can be compared. All ranks get averaged gradients with the same bits, so
// ranks that begin with equal weights and make the same steps keep equal weights. With a strategy that acts on weights,
// the ranks' weights may differ. If ranks share one copy of the weights, or each rank holds only its share, there is
// nothing to compare. Weights on a disk (offload) or on a GPU are not read only for a comparison.
bool GradientReducer::weights_are_equal() const {
  if (weight_strategy_ || !options_.offload.empty()) return false;
  return std::all_of(ranges().begin(), ranges().end(), [](const ParameterRange& range) {
    return range.values().is_cpu() && !range.is_common() && range.sharing().whole() == nullptr;
  });
}

void GradientReducer::choose_exchange() {
  std::optional<WeightSample> sample;
  if (options_.compare_weights && weights_are_equal()) sample.emplace(ranges());
  if (gradient_strategy_) {
    exchange_ =
        std::make_unique<ExchangeBuckets>(world_, trained_, *gradient_strategy_, std::move(sample),
                                          BucketOptions{.megabytes = options_.bucket_mb, .overlap = options_.overlap});
  } else if (gradients_are(layout::AlongKind::kPartial)) {
    exchange_ = std::make_unique<ExchangeInStep>(world_, trained_);
  } else {
    ShareOptions shares{.units = units_,
                        .starts_in_hooks = !weights_->come_and_go(),
                        .overlap = options_.overlap,
                        .type = options_.reduce_type};
    const std::size_t none = options_.units.size();
    for (const std::size_t unit : flat_->units()) shares.unit_of.push_back(std::min(unit, none));
    exchange_ = std::make_unique<ExchangeShares>(world_, groups_.sharers, groups_.replicas, trained_, std::move(sample),
                                                 std::move(shares));
  }
}

void GradientReducer::attach() {
  BackwardWatch::Listener listener{.on_gradient = [this](std::size_t parameter) { on_gradient(parameter); },
                                   .on_end = [this] { on_backward_end(); }};
  if (exchange_->looks_ahead()) {
    listener.before_gradient = [this](std::size_t parameter) { exchange_->before_gradient(parameter); };
  }
  watch_->attach(std::move(listener));
  if (units_) units_->attach([this](std::size_t unit) { on_unit(unit); });
}

// ---- Queries

std::vector<ParameterRange> GradientReducer::all_ranges() const {
  std::vector<ParameterRange> all = ranges();
  all.insert(all.end(), flat_->frozen().begin(), flat_->frozen().end());
  return all;
}

std::vector<tensor::NamedTensor> GradientReducer::own(std::vector<tensor::NamedTensor> tensors) const {
  const auto is_of_others = [&](const auto& item) { return options_.pipeline && !options_.pipeline.gives(item.name); };
  std::erase_if(tensors, is_of_others);
  return given_by_rank(std::move(tensors), groups_);
}

std::vector<tensor::NamedTensor> GradientReducer::own_weights() const {
  return own(weights_of(module_, all_ranges(), layout_, coordinates_));
}

void GradientReducer::load(const checkpoint::Checkpoint& from, std::string_view group) {
  load_weights(weights_of(module_, all_ranges(), layout_, coordinates_), all_ranges(), groups_, from, group,
               options_.pipeline.elsewhere());
}

std::vector<BucketTimes> GradientReducer::bucket_times() const {
  return exchange_ ? exchange_->bucket_times() : std::vector<BucketTimes>();
}

std::uint64_t GradientReducer::bytes_given() const {
  return (exchange_ ? exchange_->bytes_given() : 0) + (weight_strategy_ ? weight_strategy_->bytes_given() : 0);
}

std::string GradientReducer::tag(const char* what) const { return fmt::format("step {} {}", step_, what); }

// ---- Called from backward

void GradientReducer::on_gradient(std::size_t parameter) {
  weights_->require_there(trained_.places[parameter].range, trained_.segment_of(parameter).name);
  if (is_late_ || watch_->is_dead()) require_elsewhere(parameter);
  if (no_sync_depth_ > 0) {
    if (!watch_->is_dead()) exchange_->take(parameter);
    return;
  }
  begin_round();
  watch_->await_end();
  if (!is_late_) exchange_->take(parameter);
  if (watch_->note(parameter) && overlaps()) exchange_->ready(parameter);
}

// Throws if backward has added to a gradient that the round of a failed backward is still sending. This happens if the
// caller has not cleared `.grad` after the failure.
void GradientReducer::require_elsewhere(std::size_t parameter) const {
  const bool is_in_place = trained_.range_of(parameter).is_in_place(trained_.places[parameter].segment);
  if (!is_in_place || !exchange_->is_under_way()) return;
  throw InvalidArgument(
      Report{.what = fmt::format("[data_parallel] the gradient of {} was added to one that is on its way",
                                 trained_.segment_of(parameter).name),
             .got = "a backward after one that failed, without a forward between them, and gradients that were kept",
             .expected = "gradients that are undefined, or a forward",
             .fix = "call optimizer.zero_grad() when a backward fails, and begin anew with a forward"});
}

// Called when backward enters a unit. First it frees the weights of the units that backward has passed, which makes
// room. Then it starts the sums of gradients that are due. Then it waits for the weights of the entered unit. Because
// all ranks do this in the same order, they start the same calls in the same order.
void GradientReducer::on_unit(std::size_t unit) {
  weights_->leave_passed(unit);
  if (options_.overlap && no_sync_depth_ == 0 && !only_adds_up() && adds_all_gradients()) {
    if (watch_->is_dead() || exchange_->is_due()) {
      begin_round();
      watch_->await_end();
    }
    if (!is_late_) exchange_->enter_unit();
  }
  weights_->enter(unit);
}

void GradientReducer::refuse_another_backward() const {
  throw InvalidArgument(
      Report{.what = "[data_parallel] a backward came after the gradients were averaged and before step()",
             .got = fmt::format("more than {} since the last step()", options_.backwards_per_reduction),
             .expected = fmt::format("{} between two steps", options_.backwards_per_reduction),
             .fix = "call step() and zero_grad() first; to add up gradients, set backward_passes_per_step"});
}

void GradientReducer::begin_round() {
  if (averaged_ && guards_steps_) refuse_another_backward();
  const bool is_dead = watch_->is_dead();
  if (watch_->is_active() && !is_dead) return;
  is_late_ = is_late_ || is_dead;
  watch_->end_round();
  watch_->begin();
  if (!is_late_) exchange_->begin(round());
}

// If this backward came after a failed backward without a forward between them, waits for the calls of the failed
// backward. Then begins the round that begin_round() has postponed.
void GradientReducer::catch_up() {
  if (!is_late_) return;
  exchange_->abandon();
  exchange_->end_backward();
  is_late_ = false;
  accumulated_ = 0;
  ++step_;
  exchange_->begin(round());
}

void GradientReducer::on_backward_end() {
  catch_up();
  if (!only_adds_up()) return finish();
  ++accumulated_;
  weights_->end_backward();
  if (units_) units_->end_backward();
  end_backward();
}

void GradientReducer::finish() {
  const auto start = Clock::now();
  catch_up();
  const bool averages = averages_gradients();
  if (averages) exchange_->finish(/*first=*/0);
  averaged_ = true;
  step_is_due_ = weight_strategy_ != nullptr;
  buffers_are_fresh_ = false;
  const auto waited_in_backward = exchange_->waited_in_backward();
  reset();
  weights_->end_backward();
  if (units_) units_->end_backward();
  exposed_ = {};
  if (averages) exposed_ = Clock::now() - start + waited_in_backward;
}

// Ends the round, even if its backward failed. Waits for the calls that the backward had started. Each of these calls
// ends: if the other ranks do not start it too, it fails.
void GradientReducer::reset() {
  exchange_->abandon();
  end_backward();
  accumulated_ = 0;
  ++step_;
}

void GradientReducer::end_backward() {
  is_late_ = false;
  watch_->end_round();
  exchange_->end_backward();
}

// Ends a round whose backward has failed. The round counts as a step. Throws InvalidArgument if the backward did not
// fail, but its end was never noticed.
void GradientReducer::give_up_round() {
  if (!watch_->is_active()) return;
  if (!watch_->ended_inside_another()) return reset();
  const std::optional<std::size_t> missing = watch_->missing();
  const std::string name = missing ? trained_.segment_of(*missing).name : "";
  reset();
  throw InvalidArgument(
      Report{.what = "[data_parallel] the last backward never ended, so its gradients were not averaged",
             .got = fmt::format("no gradient of {}, and none after a backward within the backward", name),
             .expected = "a gradient of every parameter, or one outside of inner backwards",
             .fix = "use reigen's activation_checkpoint(), which tells of its end, or wrap the optimizer in "
                    "DistributedOptimizer, whose step() ends the reduction"});
}

// ---- Called by the user

void GradientReducer::number_step(std::int64_t step) {
  give_up_round();
  step_ = step;
}

void GradientReducer::prepare_forward() {
  if (options_.tensor_parallel) options_.tensor_parallel.use_on_this_thread();
  options_.context_parallel.use_on_this_thread();
  guard_->require_unchanged();
  if (!distributed()) return;
  const bool inside_backward = torch::autograd::get_current_graph_task_id() != -1;
  if (inside_backward) return;  // backward computes a forward again, and its round has begun already
  give_up_round();
  exchange_->begin_forward();
  if (units_) units_->begin_forward();
  weights_->begin_forward();
  if (no_sync_depth_ > 0 || only_adds_up()) return;
  prepare_round();
}

void GradientReducer::prepare_round() {
  require_step_told();
  ModelGuard::require_own_steps(ranges());
  if (!module_.is_training()) return;  // only a forward in training mode synchronises buffers
  buffers_are_fresh_ = true;
  if (options_.buffers == BufferPolicy::kOwn || !averages_gradients() || buffers_->empty()) return;
  exchange_->announce_forward(tag("who still trains"));
  sync_buffers(tag("buffers"));
}

void GradientReducer::sync_buffers(const std::string& tag) {
  const Participants participants = exchange_->participants();
  if (options_.buffers == BufferPolicy::kAverage) return buffers_->average(tag, participants.newest);
  buffers_->broadcast(tag, participants.first);
}

void GradientReducer::synchronize() {
  if (!distributed()) return;
  if (weights_->come_and_go() && !watch_->is_active()) {
    throw InvalidArgument(Report{
        .what = "[data_parallel] synchronize() without a backward, where ranks gather weights (shard parameters)",
        .got = "a rank that does not take part in the others' gathers",
        .expected = "the same units in every rank's forward and backward",
        .fix = "compute a loss of weight 0 on a rank without samples"});
  }
  if (!buffers_are_fresh_) {
    prepare_forward();
    if (no_sync_depth_ == 0 && only_adds_up()) prepare_round();  // the other ranks did this in the step's last forward
  }
  if (!watch_->is_active()) {
    watch_->begin();
    exchange_->begin(round());
  }
  finish();
}

void GradientReducer::start_over() {
  if (watch_->is_active()) reset();
  averaged_ = false;
  accumulated_ = 0;
}

void GradientReducer::leave_no_sync() {
  --no_sync_depth_;
  if (exchange_) exchange_->end_backward();
}

void GradientReducer::require_step_told() const {
  if (!step_is_due_) return;
  throw InvalidArgument(
      Report{.what = fmt::format("[data_parallel] strategy {} was not told of a step", weight_strategy_->description()),
             .got = "a forward after a backward, without after_step() between them",
             .expected = "backward, optimizer.step(), after_step()",
             .fix = "call after_step() after the optimizer's step; to add up gradients, use no_sync()"});
}

void GradientReducer::after_step() {
  step_is_due_ = false;
  if (weight_strategy_) weight_strategy_->after_step();
}

void GradientReducer::settle() {
  if (!distributed()) return;
  if (gradient_strategy_) gradient_strategy_->settle();
  if (weight_strategy_) weight_strategy_->settle();
  sync_buffers("buffers of all");  // the tag has no step number, because ranks may be at different steps
}

// If both strategies have state, the names of the weight strategy's entries begin with "weights.".
std::string GradientReducer::prefix_of_weights() const {
  return gradient_strategy_ && !gradient_strategy_->state().empty() ? "weights." : "";
}

std::map<std::string, at::Tensor> GradientReducer::strategy_state() const {
  std::map<std::string, at::Tensor> state;
  if (gradient_strategy_) state = gradient_strategy_->state();
  if (!weight_strategy_) return state;
  const std::string prefix = prefix_of_weights();
  for (const auto& [name, tensor] : weight_strategy_->state()) state[prefix + name] = tensor;
  return state;
}

void GradientReducer::load_strategy_state(const std::map<std::string, at::Tensor>& state) {
  std::map<std::string, at::Tensor> of_gradients = state;
  std::map<std::string, at::Tensor> of_weights;
  if (weight_strategy_) {
    const std::string prefix = prefix_of_weights();
    for (const auto& [name, tensor] : state) {
      if (!name.starts_with(prefix)) continue;
      of_weights[name.substr(prefix.size())] = tensor;
      of_gradients.erase(name);
    }
    weight_strategy_->require_state_fits(of_weights);
  }
  if (gradient_strategy_) gradient_strategy_->load_state(of_gradients);
  if (weight_strategy_) weight_strategy_->load_state(of_weights);
}

// ---- Join

void GradientReducer::begin_join(const JoinOptions& options) {
  if (!distributed()) return;
  if (joined_ != nullptr) {
    throw InvalidArgument(Report{.what = "[join] another Join of this wrapper lives",
                                 .expected = "one at a time",
                                 .fix = "call finish() of the first, or destroy it"});
  }
  if (weight_strategy_) {
    throw InvalidArgument(
        Report{.what = fmt::format("[join] strategy {} acts on weights", weight_strategy_->description()),
               .expected = "a strategy that brings gradients together in every step",
               .fix = "give every rank the same number of steps; one without samples calls synchronize()"});
  }
  if (options_.shard != Shard::kNone) {
    throw InvalidArgument(Report{.what = "[join] ranks share the weights (shard)",
                                 .expected = "weights of each rank: a rank without data would not step its share",
                                 .fix = "leave shard out, or give every rank the same number of batches"});
  }
  if (options.divide_by == DivideBy::kTrainingRanks && !gradient_strategy_->averages()) {
    throw InvalidArgument(Report{.what = fmt::format("[join] strategy {} gives no mean of the ranks' gradients",
                                                     gradient_strategy_->description()),
                                 .got = "divide_by kTrainingRanks",
                                 .expected = "divide_by kAllRanks: there is no number of ranks to divide by",
                                 .fix = "leave divide_by out"});
  }
  const auto talks = [](const torch::nn::Module& module) {
    return module.name().find("SyncBatchNorm") != std::string::npos;
  };
  const auto parts = module_.modules(/*include_self=*/false);
  if (talks(module_) || std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return talks(*part); })) {
    throw InvalidArgument(
        Report{.what = "[join] the model has a SyncBatchNorm",
               .expected = "layers that talk to no other rank: one without data would not answer them",
               .fix = "use BatchNorm, or give every rank the same number of batches"});
  }
  if (watch_->is_active()) reset();
  auto joined = std::make_unique<Joined>(world_, ranges(), options);
  joined->put_inner(std::move(exchange_));
  joined_ = joined.get();
  exchange_ = std::move(joined);
}

void GradientReducer::leave_join() {
  if (joined_ == nullptr) return;
  std::unique_ptr<Exchange> inner = joined_->take_inner();
  joined_ = nullptr;
  exchange_ = std::move(inner);
}

void GradientReducer::drop_gradients() {
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    trained_.segment_of(i).parameter.mutable_grad() = at::Tensor();
  }
}

void GradientReducer::answer_until_all_are_done(const std::function<void()>& step) {
  if (!distributed()) return;
  if (watch_->is_active()) reset();
  accumulated_ = 0;
  for (;;) {
    Roll roll;
    try {
      roll = joined_->answer(tag("who still trains"));
    } catch (const EarlyEnd&) {
      // The other ranks had begun this round and count it as a step. So this rank counts it too.
      if (joined_->roll_call().last().activity == Activity::kReduction) ++step_;
      throw;
    }
    if (roll.training == 0) break;
    if (roll.activity == Activity::kForward) {
      sync_buffers(tag("buffers"));
      continue;
    }
    drop_gradients();
    watch_->begin();
    joined_->begin_of_others(round());
    finish();
    if (step) step();
  }
  // After finish() no parameter has a gradient, on any rank. So the next step uses no old gradients.
  drop_gradients();
  start_over();
  const int trained_last = joined_->roll_call().last().first_training;
  broadcast_weights(world_, ranges(), "weights of a rank that made the last step", trained_last);
  if (options_.buffers == BufferPolicy::kBroadcast) {
    buffers_->broadcast("buffers of a rank that made the last step", trained_last);
  } else if (options_.buffers == BufferPolicy::kAverage) {
    const Roll& newest = joined_->roll_call().last_forward();
    buffers_->average("buffers of those that made the last step",
                      {.from_here = newest.here, .ranks = newest.training, .first = newest.first_training});
  }
}

}  // namespace reigen::parallel
