#include "parallel/exchange/exchange_in_step.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <utility>

#include "parallel/exchange/gradients_named.h"
#include "tensor/flat/gradient_rows.h"

namespace reigen::parallel {

// From now on backward may write gradients directly into spare blocks, which other ranks can read (spare_blocks.h).
void ExchangeInStep::begin_forward() {
  if (!at::GradMode::is_enabled()) return;
  for (const ParameterRange& range : trained_.ranges) {
    if (range.rows()->spares()) tensor::lend_to_backward(range.rows()->spares());
  }
}

void ExchangeInStep::end_backward() {
  for (const ParameterRange& range : trained_.ranges) {
    if (range.rows()->spares()) tensor::stop_lending(range.rows()->spares());
  }
}

void ExchangeInStep::take(std::size_t parameter) {
  // The gradients of the last round no longer await an average, because their step is over.
  for (const ParameterRange& range : trained_.ranges) range.rows()->set_awaits_average(false);
  trained_.range_of(parameter).take_gradient(trained_.places[parameter].segment);
}

void ExchangeInStep::finish(int) {
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    trained_.fill_slot(i);
    bytes_ += trained_.places[i].bytes;
  }
  const std::vector<char> somewhere = exchange_places();
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    at::Tensor& gradient = trained_.segment_of(i).parameter.mutable_grad();
    if (gradient.defined() || somewhere[i] == 0) continue;
    gradient = trained_.range_of(i).gradient_slot(trained_.places[i].segment);
  }
  // Now the gradients of all ranks are complete, so this rank's step may average its share of them.
  for (const ParameterRange& range : trained_.ranges) range.rows()->set_awaits_average(true);
}

// Tells all ranks where this rank's gradients lie, because backward may have written them into spare blocks
// (spare_blocks.h). Learns where the gradients of the other ranks lie. Returns which parameters have a gradient on some
// rank.
std::vector<char> ExchangeInStep::exchange_places() {
  const std::size_t count = trained_.size();
  std::vector<std::int64_t> mine;
  for (std::size_t i = 0; i < count; ++i) {
    const ParameterRange& range = trained_.range_of(i);
    mine.push_back(2 * range.rows()->place_of(range.gradient_slot(trained_.places[i].segment)) +
                   (trained_.has_gradient(i) ? 1 : 0));
  }
  std::vector<std::int64_t> all(count * static_cast<std::size_t>(world_.size()));
  const std::string what = fmt::format("step {} where gradients lie", round_.step);
  with_gradients_named(what, trained_.segment_of(0).name, trained_.segment_of(count - 1).name,
                       [&] { world_.all_gather(mine.data(), all.data(), count, DataType::kInt64, {.tag = what}); });
  std::vector<char> somewhere(count);
  std::vector<std::vector<std::int64_t>> places;
  for (const ParameterRange& range : trained_.ranges) places.emplace_back(all.size() / count * range.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ParameterPlace& place = trained_.places[i % count];
    if (all[i] % 2 != 0) somewhere[i % count] = 1;
    places[place.range][i / count * trained_.ranges[place.range].size() + place.segment] = all[i] / 2;
  }
  for (std::size_t i = 0; i < places.size(); ++i) trained_.ranges[i].rows()->set_places(std::move(places[i]));
  return somewhere;
}

}  // namespace reigen::parallel
