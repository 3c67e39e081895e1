#include "parallel/weights/unit_gatherer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "reigen/base/error.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/flat/transient_flat.h"
#include "tensor/memory/shared_tensor.h"

namespace reigen::parallel {

namespace {

bool is_in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

[[noreturn]] void refuse_graph_of_gradients(const std::string& unit) {
  throw InvalidArgument(
      Report{.what = fmt::format(
                 "[data_parallel] a graph of gradients (create_graph) needs weights that come and go: unit {}", unit),
             .expected = "gradients of which no gradients are taken, where ranks divide weights over a network",
             .fix = "use shard kGradients, or ranks of one machine"});
}

at::Tensor flat_over(const std::shared_ptr<void>& memory, const ParameterRange& range, at::ScalarType type) {
  return tensor::tensor_over(memory.get(), range.values().numel(), type, range.values().device());
}

Device device_of(const std::vector<ParameterRange>& ranges) {
  return tensor::stream_of(ranges.front().values()).device;
}

std::size_t flat_bytes(const ParameterRange& range, at::ScalarType type) {
  return static_cast<std::size_t>(range.values().numel()) * c10::elementSize(type);
}

}  // namespace

UnitGatherer::UnitGatherer(const Communicator& world, std::shared_ptr<UnitWatch> units,
                           std::vector<ParameterRange> ranges, std::vector<std::size_t> unit_of,
                           const GatherOptions& options)
    : world_(*world.split(0, world.rank())),
      units_(std::move(units)),
      ranges_(std::move(ranges)),
      parts_(units_->size() + 1),
      unit_of_(std::move(unit_of)),
      pool_(world_, device_of(ranges_)),
      narrow_(world_, device_of(ranges_)),
      options_(options) {
  for (std::size_t i = 0; i < units_->size(); ++i) parts_[i].name = units_->units()[i].name();
  parts_.back().name = "what is of no unit";
  if (options_.keepers > 0) kept_.emplace(world_, options_.keepers, ranges_.size(), device_of(ranges_));
  for (std::size_t i = 0; i < ranges_.size(); ++i) parts_[unit_of_[i]].ranges.push_back(i);
}

UnitGatherer::~UnitGatherer() {
  for (std::size_t i = 0; i < units_->size(); ++i) {
    if (!parts_[i].ranges.empty()) units_->units()[i].detach(nn::Layer::kParameters);
  }
}

void UnitGatherer::attach() {
  for (std::size_t i = 0; i < units_->size(); ++i) {
    if (parts_[i].ranges.empty()) continue;
    units_->units()[i].attach(nn::Layer::kParameters,
                              [weak = weak_from_this(), i](const nn::Carry& input, const nn::Unit::Forward& inner) {
                                const auto self = weak.lock();
                                return self ? self->run(i, input, inner) : inner(input);
                              });
  }
}

nn::Carry UnitGatherer::run(std::size_t unit, const nn::Carry& input, const nn::Unit::Forward& inner) {
  const bool in_backward = is_in_backward();
  if (!in_backward) {
    need(unit, Way::kForward);
  } else {
    // Backward computes the unit again: either alone, after backward has entered it, or together with units after it in
    // one recomputed part.
    await(parts_.back());
    await(parts_[unit]);
  }
  nn::Carry output = inner(input);
  // The last unit keeps its weights after its forward, because its backward comes next.
  const bool is_last = unit + 1 == units_->size();
  const bool stays = in_backward || (at::GradMode::is_enabled() && (is_last || !options_.release_after_forward));
  if (!stays) {
    if (units_->trains()) keep(parts_[unit]);
    release(parts_[unit]);
  }
  return output;
}

// Frees the weights of units that backward has passed, before weights of other units take memory.
void UnitGatherer::leave_passed(std::size_t entered) {
  if (at::GradMode::is_enabled()) refuse_graph_of_gradients(parts_[entered].name);
  for (std::size_t i = 0; i < units_->size(); ++i) {
    const bool leaves = options_.release_after_forward ? units_->has_passed(i) : units_->is_behind(i);
    if (leaves && i != entered) release(parts_[i]);
  }
}

void UnitGatherer::enter(std::size_t unit) { need(unit, Way::kBackward); }

void UnitGatherer::need(std::size_t part, Way way) {
  await(parts_.back());
  await(parts_[part]);
  const bool has_next = way == Way::kForward ? part + 1 < units_->size() : part > 0;
  if (!has_next) return;
  const std::size_t other = way == Way::kForward ? part + 1 : part - 1;
  if (way == Way::kBackward && units_->is_behind(other)) return;
  Part& next = parts_[other];
  if (next.coming.empty() && !is_there(next)) start(next);
}

bool UnitGatherer::is_there(const Part& part) const {
  return std::all_of(part.ranges.begin(), part.ranges.end(),
                     [&](std::size_t i) { return ranges_[i].sharing().whole()->is_there(); });
}

at::ScalarType UnitGatherer::type_on_the_way(std::size_t range) const {
  const at::ScalarType own = ranges_[range].values().scalar_type();
  return own == at::kFloat && !pinned_ ? options_.type.value_or(own) : own;
}

BlockPool& UnitGatherer::pool_of(const Coming& coming) {
  return coming.type == ranges_[coming.range].values().scalar_type() ? pool_ : narrow_;
}

// Returns memory with the values that have arrived. If they were sent rounded, it converts them to the range's own
// type.
std::shared_ptr<void> UnitGatherer::arrived(Coming& coming) {
  const ParameterRange& range = ranges_[coming.range];
  const at::ScalarType own = range.values().scalar_type();
  if (coming.type == own) return std::move(coming.memory);
  const std::shared_ptr<void> wide = pool_.take(flat_bytes(range, own));
  flat_over(wide, range, own).copy_(flat_over(coming.memory, range, coming.type));
  narrow_.give_back(std::move(coming.memory));
  return wide;
}

void UnitGatherer::start(Part& part) {
  for (const std::size_t i : part.ranges) {
    const ParameterRange& range = ranges_[i];
    pool_.give_back(range.sharing().whole()->take());  // the block of values that are out of date
    Coming& coming = part.coming.emplace_back();
    coming.range = i;
    coming.generation = range.sharing().whole()->generation();
    coming.type = type_on_the_way(i);
    coming.memory = pool_of(coming).take(flat_bytes(range, coming.type));
    const std::string tag = fmt::format("gather {}", part.name).substr(0, comm::kLongestTag);
    coming.is_kept = kept_ && kept_->has(i, coming.type, coming.generation);
    if (coming.is_kept) {
      coming.work = kept_->gather(i, range.values().numel(), coming.memory.get(), tag);
      continue;
    }
    if (kept_) kept_->forget(i);  // any slice that kept_ holds is out of date
    at::Tensor own = range.own_part(range.values());
    if (coming.type != own.scalar_type()) {
      own = range.own_part(flat_over(coming.memory, range, coming.type)).copy_(own);
    }
    coming.work =
        world_.start_all_gather_v(own.const_data_ptr(), coming.memory.get(), range.sharing().shares()->sizes(),
                                  tensor::to_data_type(coming.type), {.tag = tag, .after = tensor::stream_of(own)});
  }
}

void UnitGatherer::keep(Part& part) {
  if (!kept_ || pinned_) return;
  for (const std::size_t i : part.ranges) {
    const tensor::TransientFlat& whole = *ranges_[i].sharing().whole();
    kept_->keep(i, whole.tensor(), type_on_the_way(i), whole.generation());
  }
}

void UnitGatherer::await(Part& part) {
  const bool is_old = std::any_of(part.coming.begin(), part.coming.end(), [&](const Coming& coming) {
    return coming.generation != ranges_[coming.range].sharing().whole()->generation();
  });
  if (is_old) drop(part);
  if (part.coming.empty()) {
    if (is_there(part)) return;
    start(part);
  }
  for (Coming& coming : std::exchange(part.coming, {})) {
    end(coming);
    if (coming.is_kept) kept_->forget(coming.range);
    ranges_[coming.range].sharing().whole()->put(arrived(coming));
  }
}

// Waits for a gather. On a GPU LibTorch's current stream waits, and not the host.
void UnitGatherer::end(const Coming& coming) { tensor::wait_for(coming.work, ranges_[coming.range].values()); }

// Drops gathers that were started and are not needed. Waits for these gathers first, because all ranks have started
// them.
void UnitGatherer::drop(Part& part) {
  for (Coming& coming : std::exchange(part.coming, {})) {
    end(coming);
    pool_of(coming).give_back(std::move(coming.memory));
  }
}

void UnitGatherer::release(Part& part) {
  for (const std::size_t i : part.ranges) give_back(i);
}

void UnitGatherer::give_back(std::size_t range) {
  if (pinned_) return;
  tensor::TransientFlat& whole = *ranges_[range].sharing().whole();
  pool_.give_back(whole.take());
}

std::int64_t UnitGatherer::allocations() const {
  return pool_.allocations() + narrow_.allocations() + (kept_ ? kept_->allocations() : 0);
}

void UnitGatherer::require_there(std::size_t range, const std::string& parameter) const {
  if (ranges_[range].sharing().whole()->is_there()) return;
  throw InvalidArgument(Report{
      .what = fmt::format("[data_parallel] {} got a gradient while its weights were away", parameter),
      .got = fmt::format("a backward that does not come through what unit {} returned", parts_[unit_of_[range]].name),
      .expected = "a loss of what units return",
      .fix = "let the unit return what the loss reads too (nn::Carry), or use shard kGradients"});
}

void UnitGatherer::end_backward() {
  for (std::size_t i = 0; i < units_->size(); ++i) {
    drop(parts_[i]);
    release(parts_[i]);
  }
}

void UnitGatherer::release_all() {
  for (Part& part : parts_) {
    drop(part);
    release(part);
  }
}

void UnitGatherer::begin_forward() {
  if (pool_.has_retired() || narrow_.has_retired() || (kept_ && kept_->has_retired())) {
    tensor::finish_stream_of(ranges_.front().values());
    pool_.free_retired();
    narrow_.free_retired();
    if (kept_) kept_->free_retired();
  }
  const bool are_exact = std::exchange(pinned_, false);
  if (are_exact && options_.type) release_all();
  for (Part& part : parts_) drop(part);
  await(parts_.back());
}

void UnitGatherer::gather_all() {
  if (!pinned_ && options_.type) release_all();
  pinned_ = true;
  for (Part& part : parts_) await(part);
}

}  // namespace reigen::parallel
