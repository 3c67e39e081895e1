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
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "parallel/gradient_reducer.h"
#include "parallel/gradients_named.h"
#include "parallel/mesh_fits.h"
#include "parallel/strategies/averaged_in_step.h"
#include "parallel/strategies/gradient_shares.h"
#include "parallel/unit_gatherer.h"
#include "reigen/base/bytes.h"
#include "reigen/parallel/layout_of.h"
#include "reigen/parallel/strategies.h"
#include "reigen/tensor/data_type.h"
#include "tensor/away_memory.h"
#include "tensor/gradient_rows.h"
#include "tensor/gradient_share.h"

namespace reigen::parallel {

namespace {

// torch::autograd::grad() gives gradients to its caller, past `.grad`; backward() of chosen inputs adds some.
bool will_be_added(const at::Tensor& parameter) {
  const auto* const chosen = torch::autograd::get_current_graph_task_exec_info();
  if (chosen == nullptr || chosen->empty()) return true;
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
  const auto found = chosen->find(node.get());
  return found != chosen->end() && found->second.needed_;
}

}  // namespace

void GradientReducer::choose_sharers() {
  sharers_ = world_;
  if (!mesh_fits(options_, world_)) return;
  const mesh::Mesh& mesh = *options_.mesh;
  sharers_ = mesh.has("dp_shard") ? mesh.along("dp_shard") : Communicator();
  if (mesh.has("dp_replicate")) replicas_ = mesh.along("dp_replicate");
}

void GradientReducer::choose_layout() {
  layout_ = layout_inputs(module_, world_, options_).choose();
  coordinates_ = layout_.coordinates_of(world_.rank());
}

void GradientReducer::choose_strategy() {
  if (!distributed()) return;
  const auto gradients_are = [&](layout::AlongKind kind) {
    for (std::size_t i = 0; i < layout_.model().tensors.size(); ++i) {
      if (layout_.model().tensors[i].trainable) return layout_.placement(i, layout::Role::kGradient).has(kind);
    }
    return false;
  };
  stays_ = gradients_are(layout::AlongKind::kPartial);
  if (options_.strategy) {
    strategy_ = options_.strategy(world_);
  } else if (stays_) {
    strategy_ = averaged_in_step()(world_);
  } else if (gradients_are(layout::AlongKind::kFlat)) {
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
  if (options_.mesh && !mesh_fits(options_, world_)) {
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

void GradientReducer::pack(const std::vector<tensor::NamedParameter>& parameters) {
  require_shard_possible();
  std::vector<tensor::NamedParameter> packed;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (layout_.is_packed(i)) packed.push_back(parameters[i]);
  }
  begin_as_first_replica(packed);
  flat_ = std::make_unique<tensor::FlatParameters>(
      parameters, layout_, coordinates_,
      tensor::FlatOptions{.sharers = sharers_,
                          .offload = options_.offload,
                          .fill = [this](const at::Tensor& parameter) { fill_one(parameter); }});
  const std::vector<ParameterRange> all = all_ranges();
  if (all.front().sharing().whole() == nullptr) return;
  std::vector<std::size_t> units;
  for (const std::size_t unit : flat_->units()) units.push_back(std::min(unit, options_.units.size()));
  gatherer_ = std::make_shared<UnitGatherer>(sharers_, options_.units, all, units,
                                             GatherOptions{.release_after_forward = options_.reshard_after_forward,
                                                           .keepers = options_.reshard_to,
                                                           .type = options_.gather_type});
}

std::vector<ParameterRange> GradientReducer::all_ranges() const {
  std::vector<ParameterRange> all = ranges();
  all.insert(all.end(), flat_->frozen().begin(), flat_->frozen().end());
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
  if (range.share()->take_mark(parameter.segment, range.segments()[parameter.segment].parameter))
    parameter.adds = true;
  else if (!range.is_active(parameter.segment))
    parameter.adds = false;
}

// Memory for the gradients of a range. What is under way has left its own when the next is needed: of units as large as
// each other there are two.
void GradientReducer::make_room(const ParameterRange& range) {
  if (shares_ == nullptr || range.share()->made().is_there()) return;
  const auto start = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < next_bucket_; ++i) leave_room(buckets_[i]);
  waited_early_ += std::chrono::steady_clock::now() - start;
  tensor::TransientFlat& made = range.share()->made();
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
    const bool is_old = range.share()->take_mark(parameter.segment, range.segments()[parameter.segment].parameter);
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
  tensor::TransientFlat& made = ranges()[parameters_[bucket.parameters.front()].range].share()->made();
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
    if (parameter.has) range.share()->mark(parameter.segment, range.segments()[parameter.segment].parameter);
  }
}

// Of a backward that failed, whose gradients were dropped since.
void GradientReducer::drop_idle_rooms() {
  if (shares_ == nullptr) return;
  for (const ParameterRange& range : ranges()) {
    tensor::TransientFlat& made = range.share()->made();
    bool is_used = !made.is_there();
    for (std::size_t i = 0; i < range.size() && !is_used; ++i) is_used = range.is_in_place(i);
    if (!is_used) rooms_->give_back(made.take());
  }
}

// Each rank's step over all the weights, in the same memory, would make as many as there are ranks.
void GradientReducer::require_own_steps() const {
  for (const ParameterRange& range : ranges()) {
    if (range.sharing().is_unmodified()) continue;
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
    if (range.rows() && range.rows()->spares()) tensor::lend_to_backward(range.rows()->spares());
  }
}

void GradientReducer::stop_lending() {
  for (const ParameterRange& range : ranges()) {
    if (range.rows() && range.rows()->spares()) tensor::stop_lending(range.rows()->spares());
  }
}

// Where every rank's gradients lie, which backward may have made in spare blocks, and which parameters have one
// somewhere.
std::vector<char> GradientReducer::exchange_places() {
  const std::size_t count = parameters_.size();
  std::vector<std::int64_t> mine;
  for (const Parameter& parameter : parameters_) {
    const ParameterRange& range = ranges()[parameter.range];
    mine.push_back(2 * range.rows()->place_of(range.gradient_slot(parameter.segment)) +
                   (range.is_active(parameter.segment) ? 1 : 0));
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
  for (std::size_t i = 0; i < places.size(); ++i) ranges()[i].rows()->set_places(std::move(places[i]));
  return flags;
}

// The ranks' gradients are complete, and no rank has begun its step.
void GradientReducer::note_averages() {
  for (const ParameterRange& range : ranges()) {
    if (range.rows()) range.rows()->set_awaits_average(true);
  }
}

}  // namespace reigen::parallel
