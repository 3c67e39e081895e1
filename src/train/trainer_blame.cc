// A step that gave no number: which rank's, which parameter's.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "train/precision.h"
#include "train/trainer_impl.h"

namespace reigen::train {

namespace {

constexpr std::size_t kRanksNamed = 4;

struct Suspect {
  double loss = 0;
  std::int64_t weight = -1;    // the first parameter that holds what is no number
  std::int64_t gradient = -1;  // ... whose gradient does
};

bool is_finite(const at::Tensor& values) { return std::isfinite(values.sum(at::kDouble).item<double>()); }

Suspect suspect(double loss, const std::vector<ParameterRange>& ranges) {
  Suspect found{.loss = loss};
  std::int64_t index = 0;
  for (const ParameterRange& range : ranges) {
    for (const tensor::Segment& segment : range.segments()) {
      const at::Tensor& gradient = segment.parameter.grad();
      if (found.weight < 0 && !is_finite(segment.parameter.detach())) found.weight = index;
      if (found.gradient < 0 && gradient.defined() && !is_finite(gradient.detach())) found.gradient = index;
      ++index;
    }
  }
  return found;
}

const std::string& name_of(std::int64_t index, const std::vector<ParameterRange>& ranges) {
  auto range = ranges.begin();
  for (; index >= static_cast<std::int64_t>(range->size()); ++range) index -= static_cast<std::int64_t>(range->size());
  return range->segments()[static_cast<std::size_t>(index)].name;
}

}  // namespace

// Gradients are averages by now, so a rank whose loss is a number shows only in a backward of its own.
void Trainer::Impl::compute_alone(const data::Batch& batch) {
  const auto alone = parallel->no_sync();
  for (const ParameterRange& range : parallel->parameters()) range.drop_gradients();
  seed_step();
  at::Tensor loss;
  {
    const auto autocast = compute_type(config.train.precision);
    loss = task.loss(batch.input, batch.target);
  }
  if (batch.weight != 1) loss = loss * batch.weight;
  optimization->scaled(loss).backward();
}

std::string Trainer::Impl::blame(double loss, const data::Batch& batch) {
  const std::vector<ParameterRange>& ranges = parallel->parameters();
  std::vector<Suspect> all(static_cast<std::size_t>(world.size()));
  const auto ask = [&] {
    Suspect& own = all[static_cast<std::size_t>(world.rank())] = suspect(loss, ranges);
    if (batch.terms == 0) own.loss = 0;
    world.all_gather(&own, all.data(), sizeof(Suspect), DataType::kUint8, {.tag = "who has no number"});
  };
  const auto is_blamed = [](const Suspect& s) { return !std::isfinite(s.loss) || s.weight >= 0 || s.gradient >= 0; };
  ask();
  const bool only_gradients =
      std::all_of(all.begin(), all.end(), [](const Suspect& s) { return std::isfinite(s.loss) && s.weight < 0; });
  if (only_gradients && world.size() > 1 && !parallel->ranks_differ()) {
    const Suspect averaged = all.front();
    compute_alone(batch);
    ask();
    if (std::none_of(all.begin(), all.end(), is_blamed)) {
      return averaged.gradient < 0 ? std::string("no rank has it when it computes the step again")
                                   : fmt::format("gradient of {}, on no rank when it computes the step again",
                                                 name_of(averaged.gradient, ranges));
    }
  }
  std::vector<std::string> texts;
  std::size_t blamed = 0;
  for (std::size_t q = 0; q < all.size(); ++q) {
    const Suspect& s = all[q];
    // A loss that is no number makes the average's gradients none on every rank.
    const bool loss_is_number = std::isfinite(s.loss);
    if (!is_blamed(s) || (loss_is_number && !only_gradients && s.weight < 0)) continue;
    if (++blamed > kRanksNamed) continue;
    std::string text = fmt::format("rank {}:", q);
    if (!loss_is_number) text += fmt::format(" loss {},", s.loss);
    if (s.weight >= 0) text += fmt::format(" weights {},", name_of(s.weight, ranges));
    if (s.gradient >= 0) text += fmt::format(" gradient of {},", name_of(s.gradient, ranges));
    text.pop_back();
    texts.push_back(std::move(text));
  }
  if (texts.empty()) return "every loss, weight and gradient is a number by itself";
  std::string list = fmt::format("{}", fmt::join(texts, "; "));
  if (blamed > kRanksNamed) list += fmt::format("; and {} ranks more", blamed - kRanksNamed);
  return list;
}

}  // namespace reigen::train
