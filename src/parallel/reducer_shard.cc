// The reducer's part in Shard: weights, and gradients, in memory of all ranks.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/check.h"
#include "parallel/gradient_reducer.h"
#include "parallel/gradients_named.h"
#include "tensor/spare_blocks.h"

namespace reigen::parallel {

const char* to_text(Shard shard) {
  switch (shard) {
    case Shard::kNone: return "none";
    case Shard::kOptimizer: return "optimizer";
    case Shard::kGradients: return "gradients";
  }
  return "unknown";
}

void GradientReducer::pack(const std::vector<tensor::NamedParameter>& trainable) {
  if (options_.shard == Shard::kNone) {
    flat_ = std::make_unique<tensor::FlatParameters>(trainable, world_);
    return;
  }
  const auto refuse = [&](const std::string& got, const char* expected, const char* fix) {
    return InvalidArgument(
        Report{.what = fmt::format("[data_parallel] shard {} is not possible here", to_text(options_.shard)),
               .got = got,
               .expected = expected,
               .fix = fix});
  };
  if (strategy_ && options_.shard == Shard::kGradients && options_.strategy) {
    throw refuse(fmt::format("strategy {}", strategy_->description()), "no strategy: each rank averages its share",
                 "leave the strategy out, or take shard optimizer");
  }
  if (strategy_ && strategy_->acts_on_weights()) {
    throw refuse(fmt::format("strategy {}", strategy_->description()), "a strategy that keeps all ranks' weights equal",
                 "leave one of the two out");
  }
  if (distributed() && world_.backend() != "shared_memory") {
    throw refuse(fmt::format("backend {}", world_.backend()), "ranks on one machine, over shared_memory",
                 "leave shard out");
  }
  flat_ = std::make_unique<tensor::FlatParameters>(
      trainable, world_,
      options_.shard == Shard::kGradients ? tensor::Common::kValuesAndGradients : tensor::Common::kValues);
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
