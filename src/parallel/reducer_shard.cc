// The reducer's part in Shard: weights, and gradients, in memory of all ranks.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "parallel/gradient_reducer.h"
#include "parallel/gradients_named.h"
#include "parallel/strategies/averaged_in_step.h"
#include "parallel/strategies/gradient_shares.h"
#include "parallel/unit_gatherer.h"
#include "reigen/base/bytes.h"
#include "reigen/parallel/strategies.h"
#include "reigen/tensor/data_type.h"
#include "tensor/away_memory.h"
#include "tensor/spare_blocks.h"
#include "tensor/transient_flat.h"

namespace reigen::parallel {

namespace {

constexpr std::size_t kNoUnit = static_cast<std::size_t>(-1);

struct Group {
  std::size_t unit = kNoUnit;
  std::vector<tensor::NamedParameter> parameters;
};

using Modules = std::set<const torch::nn::Module*>;

Modules with_inner_ones(const torch::nn::Module& module) {
  Modules result{&module};
  for (const auto& inner : module.modules(/*include_self=*/false)) result.insert(inner.get());
  return result;
}

// Of each parameter the innermost unit in which all modules lie that have it. What others have too, as tied weights, is
// of none: they may read it while the unit does not run.
std::map<const at::TensorImpl*, std::size_t> innermost_units(const torch::nn::Module& model,
                                                             const std::vector<nn::Unit>& units) {
  std::map<const at::TensorImpl*, Modules> owners;
  for (const torch::nn::Module* module : with_inner_ones(model)) {
    for (const at::Tensor& parameter : module->parameters(/*recurse=*/false)) {
      owners[parameter.unsafeGetTensorImpl()].insert(module);
    }
  }
  std::vector<Modules> inside;
  for (const nn::Unit& unit : units) inside.push_back(with_inner_ones(unit.module()));
  const auto within = [&](const Modules& a, std::size_t b) {
    return std::includes(inside[b].begin(), inside[b].end(), a.begin(), a.end());
  };
  std::map<const at::TensorImpl*, std::size_t> result;
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (const at::Tensor& parameter : units[i].parameters()) {
      const at::TensorImpl* const tensor = parameter.unsafeGetTensorImpl();
      if (!within(owners[tensor], i)) continue;
      const auto [place, is_new] = result.emplace(tensor, i);
      if (is_new || place->second == i || place->second == kNoUnit) continue;
      const bool is_inner = within(inside[i], place->second);
      const bool is_outer = within(inside[place->second], i);
      if (is_inner) place->second = is_outer ? kNoUnit : i;  // two of one module may take turns
      if (!is_inner && !is_outer) place->second = kNoUnit;
    }
  }
  return result;
}

// One a unit, in their order; then what is of no unit, in groups of about `limit` bytes.
std::vector<Group> groups_of(const std::vector<tensor::NamedParameter>& parameters, const torch::nn::Module& model,
                             const std::vector<nn::Unit>& units, std::size_t limit) {
  const auto unit_of = innermost_units(model, units);
  std::vector<Group> groups(units.size());
  for (std::size_t i = 0; i < units.size(); ++i) groups[i].unit = i;
  std::size_t bytes = limit;
  for (const tensor::NamedParameter& entry : parameters) {
    const auto found = unit_of.find(entry.parameter.unsafeGetTensorImpl());
    if (found != unit_of.end() && found->second != kNoUnit) {
      groups[found->second].parameters.push_back(entry);
      continue;
    }
    if (bytes >= limit) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().parameters.push_back(entry);
    bytes += entry.parameter.nbytes();
  }
  std::erase_if(groups, [](const Group& group) { return group.parameters.empty(); });
  return groups;
}

// torch::autograd::grad() gives gradients to its caller, past `.grad`; backward() of chosen inputs adds some.
bool will_be_added(const at::Tensor& parameter) {
  const auto* const chosen = torch::autograd::get_current_graph_task_exec_info();
  if (chosen == nullptr || chosen->empty()) return true;
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
  const auto found = chosen->find(node.get());
  return found != chosen->end() && found->second.needed_;
}

}  // namespace

const char* to_text(Shard shard) {
  switch (shard) {
    case Shard::kNone: return "none";
    case Shard::kOptimizer: return "optimizer";
    case Shard::kGradients: return "gradients";
    case Shard::kParameters: return "parameters";
  }
  return "unknown";
}

bool GradientReducer::mesh_fits() const {
  const mesh::Mesh& mesh = *options_.mesh;
  return options_.shard != Shard::kNone && mesh.world().size() == world_.size() &&
         mesh.size("dp_shard") * mesh.size("dp_replicate") == world_.size();
}

void GradientReducer::choose_sharers() {
  sharers_ = world_;
  if (!options_.mesh || !mesh_fits()) return;
  const mesh::Mesh& mesh = *options_.mesh;
  sharers_ = mesh.has("dp_shard") ? mesh.along("dp_shard") : Communicator();
  if (mesh.has("dp_replicate")) replicas_ = mesh.along("dp_replicate");
}

void GradientReducer::choose_strategy() {
  if (!distributed()) return;
  if (options_.strategy) {
    strategy_ = options_.strategy(world_);
  } else if (stays()) {
    strategy_ = averaged_in_step()(world_);
  } else if (sharers_.size() > 1 && (options_.shard == Shard::kGradients || options_.shard == Shard::kParameters)) {
    auto shares = std::make_unique<GradientShares>(sharers_, replicas_, options_.reduce_type);
    shares_ = shares.get();
    strategy_ = std::move(shares);
    rooms_ = std::make_unique<BlockPool>(sharers_);
  } else {
    strategy_ = plain()(world_);
  }
}

void GradientReducer::require_shard_possible() const {
  const auto refuse = [&](const char* expected, const char* fix) {
    return InvalidArgument(
        Report{.what = fmt::format("[data_parallel] shard {} is not possible here", to_text(options_.shard)),
               .got = fmt::format("strategy {}", strategy_->description()),
               .expected = expected,
               .fix = fix});
  };
  if (options_.mesh && !mesh_fits()) {
    throw InvalidArgument(Report{
        .what = "[data_parallel] the mesh does not say who divides",
        .got = fmt::format("{}, {} ranks, shard {}", options_.mesh->to_text(), world_.size(), to_text(options_.shard)),
        .expected = "axes dp_replicate and dp_shard over all ranks, and a shard",
        .fix = "use Mesh(world, {{\"dp_replicate\", 2}, {\"dp_shard\", kRest}}), or leave mesh out"});
  }
  if (!strategy_ || options_.shard == Shard::kNone) return;
  if (options_.strategy && options_.shard != Shard::kOptimizer) {
    throw refuse("no strategy: each rank averages its share", "leave the strategy out, or take shard optimizer");
  }
  if (strategy_->acts_on_weights()) {
    throw refuse("a strategy that keeps all ranks' weights equal", "leave one of the two out");
  }
}

// Those who divide begin as the first of them does.
void GradientReducer::begin_as_first_replica(const std::vector<tensor::NamedParameter>& parameters) {
  if (replicas_.size() == 1) return;
  const at::NoGradGuard no_grad;
  for (const tensor::NamedParameter& entry : parameters) {
    if (tensor::is_away(entry.parameter)) continue;
    const at::Tensor values = entry.parameter.detach().contiguous();
    replicas_.broadcast(values.mutable_data_ptr(), static_cast<std::size_t>(values.numel()),
                        tensor::to_data_type(values.scalar_type()), 0, {.tag = "parameters of rank 0"});
    entry.parameter.detach().copy_(values);
  }
}

void GradientReducer::pack(const std::vector<tensor::NamedParameter>& trainable,
                           const std::vector<tensor::NamedParameter>& frozen) {
  require_shard_possible();
  begin_as_first_replica(trainable);
  if (shares_ == nullptr) {
    tensor::Division division{.offload = options_.offload};
    if (options_.shard != Shard::kNone) {
      division.values = is_one_machine() ? tensor::Values::kCommon : tensor::Values::kExchanged;
    }
    if (stays()) division.averages = tensor::Averages::kRows;
    flat_ = std::make_unique<tensor::FlatParameters>(trainable, sharers_, division);
    return;
  }
  tensor::Division division{
      .values = tensor::Values::kCommon, .averages = tensor::Averages::kShare, .offload = options_.offload};
  division.fill = [this](const at::Tensor& parameter) { fill_one(parameter); };
  const bool divides_weights = options_.shard == Shard::kParameters;
  if (!is_one_machine()) division.values = divides_weights ? tensor::Values::kGathered : tensor::Values::kExchanged;
  const auto make = [&](const std::vector<tensor::NamedParameter>& parameters) {
    const auto limit = static_cast<std::size_t>(options_.bucket_mb * static_cast<double>(kMiB));
    std::vector<std::vector<tensor::NamedParameter>> groups;
    std::vector<std::size_t> units;
    for (Group& group : groups_of(parameters, module_, options_.units, limit)) {
      groups.push_back(std::move(group.parameters));
      units.push_back(std::min(group.unit, options_.units.size()));
    }
    auto flat = std::make_unique<tensor::FlatParameters>(groups, sharers_, division);
    for (const std::size_t group : flat->groups_of_ranges()) units_of_ranges_.push_back(units[group]);
    return flat;
  };
  flat_ = make(trainable);
  if (divides_weights) {
    // What flat buffers do not take, as integers, every rank has.
    std::vector<tensor::NamedParameter> packed;
    for (const tensor::NamedParameter& entry : frozen) {
      const at::Tensor& tensor = entry.parameter;
      const bool fits = tensor.layout() == at::kStrided && at::isFloatingType(tensor.scalar_type());
      if (fits && tensor.device().is_cpu() && tensor.is_leaf()) packed.push_back(entry);
    }
    begin_as_first_replica(packed);
    frozen_ = make(packed);
  }
  if (division.values == tensor::Values::kGathered) {
    gatherer_ = std::make_shared<UnitGatherer>(sharers_, options_.units, all_ranges(), units_of_ranges_,
                                               GatherOptions{.release_after_forward = options_.reshard_after_forward,
                                                             .keepers = options_.reshard_to,
                                                             .type = options_.gather_type});
  }
}

std::vector<ParameterRange> GradientReducer::all_ranges() const {
  std::vector<ParameterRange> all = ranges();
  if (frozen_) all.insert(all.end(), frozen_->ranges().begin(), frozen_->ranges().end());
  return all;
}

void GradientReducer::gather_weights() {
  if (gatherer_) gatherer_->gather_all();
}

// ---- Gradients of which ranks keep shares

void GradientReducer::before_gradient(std::size_t index) {
  Parameter& parameter = parameters_[index];
  const ParameterRange& range = ranges()[parameter.range];
  if (!will_be_added(range.segments()[parameter.segment].parameter)) return;
  if (range.take_back(parameter.segment))
    parameter.adds = true;
  else if (!range.is_active(parameter.segment))
    parameter.adds = false;
}

// Memory for the gradients of a range. What is under way has left its own when the next is needed: of units as large as
// each other there are two.
void GradientReducer::make_room(const ParameterRange& range) {
  if (shares_ == nullptr || range.share().made->is_there()) return;
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < next_bucket_; ++i) leave_room(buckets_[i]);
  waited_early_ += std::chrono::steady_clock::now() - start;
  tensor::TransientFlat& made = *range.share().made;
  made.put(rooms_->take(made.bytes()));
  // What lies between two parameters travels along.
  const auto size = static_cast<std::int64_t>(range.values().element_size());
  const std::vector<tensor::Segment>& segments = range.segments();
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::int64_t end = segments[i].offset + segments[i].numel;
    const std::int64_t next = i + 1 < segments.size() ? segments[i + 1].offset : range.values().numel();
    std::memset(made.data() + end * size, 0, static_cast<std::size_t>((next - end) * size));
  }
}

void GradientReducer::begin_shares(Bucket& bucket) {
  const ParameterRange& range = ranges()[parameters_[bucket.parameters.front()].range];
  make_room(range);
  std::vector<char> added(range.size());
  for (const std::size_t i : bucket.parameters) {
    Parameter& parameter = parameters_[i];
    // Kept from before, and nothing came; or what it was to be added to was dropped since (zero_grad()).
    const bool is_old = range.take_back(parameter.segment);
    parameter.has = is_old || range.is_active(parameter.segment);
    parameter.adds = is_old || (parameter.adds && parameter.has);
    added[parameter.segment] = parameter.adds ? 1 : 0;
    if (range.is_active(parameter.segment)) {
      range.gather_gradient(parameter.segment);
    } else {
      const at::Tensor& slot = range.gradient_slot(parameter.segment);
      std::memset(slot.mutable_data_ptr(), 0, slot.nbytes());
    }
  }
  shares_->begin(range, std::move(added), bucket.given);
}

// This rank's share of the sum is where it belongs.
void GradientReducer::leave_room(Bucket& bucket) {
  tensor::TransientFlat& made = *ranges()[parameters_[bucket.parameters.front()].range].share().made;
  if (!bucket.launched || !made.is_there()) return;
  with_gradients_named(bucket.label, bucket.given.names.front(), bucket.given.names.back(),
                       [&] { shares_->collect(bucket.given); });
  for (const std::size_t i : bucket.parameters) {
    const Parameter& parameter = parameters_[i];
    ranges()[parameter.range].segments()[parameter.segment].parameter.mutable_grad().reset();
  }
  rooms_->give_back(made.take());
}

void GradientReducer::keep_shares(const Bucket& bucket) {
  const ParameterRange& range = ranges()[parameters_[bucket.parameters.front()].range];
  for (const std::size_t i : bucket.parameters) {
    Parameter& parameter = parameters_[i];
    parameter.adds = false;
    if (parameter.has) range.keep_gradient(parameter.segment);
  }
}

// Of a backward that failed, whose gradients were dropped since.
void GradientReducer::drop_idle_rooms() {
  if (shares_ == nullptr) return;
  for (const ParameterRange& range : ranges()) {
    tensor::TransientFlat& made = *range.share().made;
    bool is_used = !made.is_there();
    for (std::size_t i = 0; i < range.size() && !is_used; ++i) is_used = range.is_in_place(i);
    if (!is_used) rooms_->give_back(made.take());
  }
}

// Each rank's step over all the weights, in the same memory, would make as many as there are ranks.
void GradientReducer::require_own_steps() const {
  for (const ParameterRange& range : ranges()) {
    if (range.is_as_left()) continue;
    throw InvalidArgument(Report{
        .what =
            "[data_parallel] weights that ranks share (shard) changed otherwise than by an optimizer of reigen::optim",
        .got = fmt::format("other values than those it left, in the range that begins with {}",
                           range.segments().front().name),
        .expected = "optimizer.step() of one made of parameters()",
        .fix = "use reigen::optim, or leave shard out; load weights before data_parallel(); what one rank changes by "
               "hand every rank tells with note_change() of the range, behind a barrier"});
  }
}

void GradientReducer::lend_spare_blocks() {
  if (!at::GradMode::is_enabled()) return;
  for (const ParameterRange& range : ranges()) {
    if (range.share().spares) tensor::lend_to_backward(range.share().spares);
  }
}

void GradientReducer::stop_lending() {
  for (const ParameterRange& range : ranges()) {
    if (range.share().spares) tensor::stop_lending(range.share().spares);
  }
}

// Where every rank's gradients lie, which backward may have made in spare blocks, and which parameters have one
// somewhere.
std::vector<char> GradientReducer::exchange_places() {
  const std::size_t count = parameters_.size();
  std::vector<std::int64_t> mine;
  for (const Parameter& parameter : parameters_) {
    const ParameterRange& range = ranges()[parameter.range];
    mine.push_back(2 * range.gradient_place(parameter.segment) + (range.is_active(parameter.segment) ? 1 : 0));
  }
  std::vector<std::int64_t> all(count * static_cast<std::size_t>(world_.size()));
  const std::string what = tag("where gradients lie");
  with_gradients_named(what, buckets_.front().given.names.front(), buckets_.back().given.names.back(),
                       [&] { world_.all_gather(mine.data(), all.data(), count, DataType::kInt64, {.tag = what}); });
  std::vector<char> flags(count);
  std::vector<std::vector<std::int64_t>> places;
  for (const ParameterRange& range : ranges()) places.emplace_back(all.size() / count * range.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Parameter& parameter = parameters_[i % count];
    if (all[i] % 2 != 0) flags[i % count] = 1;
    places[parameter.range][i / count * ranges()[parameter.range].size() + parameter.segment] = all[i] / 2;
  }
  for (std::size_t i = 0; i < places.size(); ++i) ranges()[i].set_gradient_places(std::move(places[i]));
  return flags;
}

// The ranks' gradients are complete, and no rank has begun its step.
void GradientReducer::note_averages() {
  for (const ParameterRange& range : ranges()) range.set_awaits_average(range.share().gradients.defined());
}

}  // namespace reigen::parallel
