#include "train/watch/blame.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <vector>

#include "tensor/flat/gradient_share.h"
#include "train/model/device.h"
#include "train/model/memory_fit.h"
#include "train/model/micro_batch.h"

namespace reigen::train {

namespace {

constexpr std::size_t kRanksNamed = 4;

struct Suspect {
  double loss = 0;
  std::int64_t weight = -1;  // index of the first parameter with a weight that is not finite; -1 means none
  // Index of the last parameter whose gradient is not finite; -1 means none. Backward reaches the last parameter first.
  std::int64_t gradient = -1;
  std::int64_t failed = 0;  // 1 if this rank could not compute the step again
};

bool is_finite(const at::Tensor& values) { return std::isfinite(values.sum(at::kDouble).item<double>()); }

struct InRange {
  const ParameterRange* range = nullptr;  // null if the parameter is in no range
  std::size_t segment = 0;
};

InRange find(const std::vector<ParameterRange>& ranges, const at::Tensor& parameter) {
  for (const ParameterRange& range : ranges) {
    for (std::size_t i = 0; i < range.size(); ++i) {
      if (range.segments()[i].parameter.unsafeGetTensorImpl() == parameter.unsafeGetTensorImpl()) return {&range, i};
    }
  }
  return {};
}

// Whether this rank's share of the segment is finite in `flat`, a buffer with the layout of the range.
bool is_share_finite(const InRange& place, const at::Tensor& flat) {
  const tensor::Segment& segment = place.range->segments()[place.segment];
  const layout::Part part = place.range->part_of(segment);
  return part.count == 0 || is_finite(flat.narrow(0, segment.offset + part.first, part.count));
}

// Whether the averaged gradient is finite. Checks this rank's share if ranks divide the averaged gradients, else the
// whole gradient.
bool is_kept_finite(const std::vector<ParameterRange>& ranges, const at::Tensor& parameter) {
  const InRange place = find(ranges, parameter);
  const bool has_share = place.range != nullptr && place.range->share() != nullptr;
  if (has_share && place.range->share()->is_marked(place.segment, parameter.grad())) {
    return is_share_finite(place, place.range->gradients());
  }
  return is_finite(parameter.grad().detach());
}

// Whether the weights are finite. Checks only this rank's share if this rank does not hold all weights.
bool is_held_finite(const std::vector<ParameterRange>& weights, const at::Tensor& parameter) {
  const InRange place = find(weights, parameter);
  if (place.range != nullptr && place.range->sharing().whole() != nullptr) {
    return is_share_finite(place, place.range->values());
  }
  return is_finite(parameter.detach());
}

// `module`: the whole model. Of a pipeline's model this rank looks at the parameters of its stages.
Suspect suspect(double loss, const torch::nn::Module& module, const TrainedModel& model) {
  const std::vector<ParameterRange> weights = model.parallel().weights();
  Suspect found{.loss = loss};
  std::int64_t index = -1;
  for (const auto& item : module.named_parameters()) {
    ++index;
    if (model.pipeline() && model.pipeline().is_elsewhere(item.key())) continue;
    const at::Tensor& parameter = item.value();
    if (found.weight < 0 && !is_held_finite(weights, parameter)) found.weight = index;
    const bool has_gradient = parameter.grad().defined();
    if (has_gradient && !is_kept_finite(model.parallel().parameters(), parameter)) found.gradient = index;
  }
  return found;
}

bool has_lost(const Suspect& s) { return !std::isfinite(s.loss); }

std::string name_of(const torch::nn::Module& module, std::int64_t parameter) {
  return module.named_parameters()[static_cast<std::size_t>(parameter)].key();
}

// Returns a text such as "rank 1: loss nan; rank 3: ...". It lists the first ranks for which `what` returns any text.
// It is empty if there is no such rank.
template <class What>
std::string list_ranks(const std::vector<Suspect>& all, const What& what) {
  std::vector<std::string> texts;
  std::size_t blamed = 0;
  for (std::size_t q = 0; q < all.size(); ++q) {
    const std::vector<std::string> words = what(all[q]);
    if (!words.empty() && ++blamed <= kRanksNamed) {
      texts.push_back(fmt::format("rank {}: {}", q, fmt::join(words, ", ")));
    }
  }
  const std::string more = blamed > kRanksNamed ? fmt::format("; and {} ranks more", blamed - kRanksNamed) : "";
  return fmt::format("{}{}", fmt::join(texts, "; "), more);
}

}  // namespace

// Computes the gradients of this rank's own samples again, without averaging. The gradients of the step are averages by
// now. So if all losses are finite, only a backward of each rank alone can show which rank is to blame. If ranks are
// processes, the model draws the same random numbers again. A SyncBatchNorm still combines the samples of all ranks.
void Blame::compute_alone(const data::Batch& batch, std::int64_t step) {
  const auto alone = model_.parallel().no_sync();
  for (const ParameterRange& range : model_.parallel().parameters()) range.drop_gradients();
  seed_step(run_, step - 1);
  const LogTo nowhere(run_.task, nullptr);  // the step has logged already
  for (const data::MicroBatch& part : batch.parts) backward(model_, loss_of(run_, part), part);
}

std::string Blame::of_step(double loss, const data::Batch& batch) { return of(loss, batch, run_.done + 1, true); }

std::string Blame::of_past_step(double loss, const data::Batch& batch, std::int64_t step) {
  return of(loss, batch, step, false);
}

std::string Blame::of(double loss, const data::Batch& batch, std::int64_t step, bool has_gradients) {
  std::vector<Suspect> all(static_cast<std::size_t>(run_.world.size()));
  const auto name = [&](std::int64_t index) { return name_of(run_.task.module(), index); };
  const auto ask = [&](bool failed) {
    Suspect& own = all[static_cast<std::size_t>(run_.world.rank())] =
        suspect(batch.terms == 0 ? 0 : loss, run_.task.module(), model_);
    own.failed = failed ? 1 : 0;
    run_.world.all_gather(&own, all.data(), sizeof(Suspect), DataType::kUint8, {.tag = "who has no number"});
  };
  const auto any = [&](auto is) { return std::any_of(all.begin(), all.end(), is); };
  const auto has_weight = [](const Suspect& s) { return s.weight >= 0; };
  const auto has_gradient = [](const Suspect& s) { return s.gradient >= 0; };
  ask(false);
  const auto holder = std::find_if(all.begin(), all.end(), has_weight);
  if (model_.is_in_parts() ? holder != all.end() : std::all_of(all.begin(), all.end(), has_weight)) {
    return fmt::format("the weights {} hold it, from the step before or from the start", name(holder->weight));
  }
  // An average is not finite if the gradient of any rank is not finite, so it does not show which rank is to blame.
  // The ranks of a pipeline do not compute the step again: each names what it has found in its stages.
  bool is_own = run_.world.size() == 1 || model_.ranks_differ() || model_.pipeline();
  if (!any(has_lost) && !any(has_weight)) {
    if (has_gradients && !any(has_gradient)) return "every gradient is a number: their squares are too large to add";
    if (!is_own || !has_gradients) {
      // If each rank holds only its share of the averaged gradients, the ranks have found different parameters. The
      // error names the last of these parameters.
      const std::int64_t averaged = std::max_element(all.begin(), all.end(), [](const Suspect& a, const Suspect& b) {
                                      return a.gradient < b.gradient;
                                    })->gradient;
      const std::string seen = has_gradients ? "gradient of " + name(averaged) : "the norm of the gradients";
      if (model_.gathers()) {
        try {
          require_room("the whole model, on the rank that computes its step again,", model_.whole_weights(), "",
                       run_.world, [&] { return available_on(run_.device); });
        } catch (const Error& error) {
          if (!error.is_common()) throw;
          return seen + "; no memory for whole weights, with which each rank could look for its own";
        }
        model_.parallel().gather_weights();  // gathers all at once, because a rank may fail in the middle of its step
      }
      bool failed = false;
      try {
        compute_alone(batch, step);
      } catch (const std::exception&) {
        failed = true;  // Suspect::failed, which the error mentions
      }
      ask(failed);
      is_own = true;
      if (!any(has_gradient)) {
        const char* const squares = has_gradients ? "" : ", as if squares or losses were too large to add";
        return fmt::format("{}, on no rank by itself when the step is computed again{}", seen, squares);
      }
    }
  }
  const std::string text = list_ranks(all, [&](const Suspect& s) {
    std::vector<std::string> what;
    if (has_lost(s)) what.push_back(fmt::format("loss {}", s.loss));
    if (has_weight(s)) what.push_back(fmt::format("weights {}", name(s.weight)));
    if (is_own && has_gradient(s)) what.push_back(fmt::format("gradient of {}", name(s.gradient)));
    if (s.failed != 0) what.emplace_back("could not compute the step again");
    return what;
  });
  return text.empty() ? "every rank's loss is a number: their sum is too large" : text;
}

std::string Blame::of_own_gradients() {
  const Suspect own = suspect(0, run_.task.module(), model_);
  std::vector<Suspect> all(static_cast<std::size_t>(run_.world.size()));
  run_.world.all_gather(&own, all.data(), sizeof(Suspect), DataType::kUint8, {.tag = "who has no number"});
  const std::string text = list_ranks(all, [&](const Suspect& s) {
    std::vector<std::string> what;
    if (s.gradient >= 0) what.push_back(fmt::format("gradient of {}", name_of(run_.task.module(), s.gradient)));
    return what;
  });
  return text.empty() ? "every rank's gradient is a number: their mean is too large" : text;
}

std::string Blame::of_this_rank(double loss) {
  const Suspect own = suspect(loss, run_.task.module(), model_);
  std::string text = fmt::format("rank {}: ", run_.world.rank());
  if (has_lost(own)) return text + fmt::format("loss {}", loss);
  if (own.weight >= 0) return text + fmt::format("weights {}", name_of(run_.task.module(), own.weight));
  if (own.gradient >= 0) return text + fmt::format("gradient of {}", name_of(run_.task.module(), own.gradient));
  return text + "every gradient is a number: their squares are too large to add";
}

}  // namespace reigen::train
