// The reducer's part in a Join: ranks with data announce what they do, ranks without do it with zeros.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <memory>
#include <string>

#include "parallel/gradient_reducer.h"

namespace reigen::parallel {

void GradientReducer::begin_join(const JoinOptions& options) {
  if (!distributed()) return;
  if (roll_call_) {
    throw InvalidArgument(Report{.what = "[join] another Join of this wrapper lives",
                                 .expected = "one at a time",
                                 .fix = "call finish() of the first, or destroy it"});
  }
  if (strategy_->acts_on_weights()) {
    throw InvalidArgument(
        Report{.what = fmt::format("[join] strategy {} acts on weights", strategy_->description()),
               .expected = "a strategy that brings gradients together in every step",
               .fix = "give every rank the same number of steps; one without samples calls synchronize()"});
  }
  if (options_.shard != Shard::kNone) {
    throw InvalidArgument(Report{.what = "[join] ranks share the weights (shard)",
                                 .expected = "weights of each rank: a rank without data would not step its share",
                                 .fix = "leave shard out, or give every rank the same number of batches"});
  }
  if (options.divide_by == DivideBy::kTrainingRanks && !strategy_->averages()) {
    throw InvalidArgument(Report{
        .what = fmt::format("[join] strategy {} gives no mean of the ranks' gradients", strategy_->description()),
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
  if (active_) reset();
  roll_call_ = std::make_unique<RollCall>(world_, options);
}

void GradientReducer::leave_join() { roll_call_.reset(); }

// The newest are with the ranks that made the forward before this one.
void GradientReducer::average_buffers(const std::string& tag) {
  if (!roll_call_) return buffers_->average(tag, {.ranks = world_.size()});
  const Roll& newest = roll_call_->forward_before();
  buffers_->average(tag, {.from_here = newest.here, .ranks = newest.training, .first = newest.first_training});
}

void GradientReducer::announce(Activity activity) {
  if (roll_call_) roll_call_->answer(activity, tag("who still trains"));
}

void GradientReducer::announce_reduction() {
  if (!roll_call_ || is_announced_) return;
  is_announced_ = true;
  announce(Activity::kReduction);
}

void GradientReducer::correct_for_ended() {
  if (!roll_call_ || roll_call_->correction() == 1) return;
  const at::NoGradGuard no_grad;
  for (const ParameterRange& range : ranges()) range.gradients().mul_(roll_call_->correction());
}

void GradientReducer::drop_gradients() {
  for (const Parameter& parameter : parameters_) {
    ranges()[parameter.range].segments()[parameter.segment].parameter.mutable_grad() = at::Tensor();
  }
}

void GradientReducer::answer_until_all_are_done(const std::function<void()>& step) {
  if (!distributed()) return;
  if (active_) reset();
  accumulated_ = 0;
  for (;;) {
    Roll roll;
    try {
      roll = roll_call_->answer(Activity::kNone, tag("who still trains"));
    } catch (const EarlyEnd&) {
      // The others had begun one, which they count.
      if (roll_call_->last().activity == Activity::kReduction) ++step_;
      throw;
    }
    if (roll.training == 0) break;
    if (roll.activity == Activity::kForward) {
      sync_buffers(tag("buffers"));
      continue;
    }
    drop_gradients();
    begin();
    is_announced_ = true;
    finish();
    if (step) step();
  }
  // Ranks that trained to the end may have cleared theirs, and the others must not bring theirs into the next step.
  drop_gradients();
  start_over();
  broadcast_weights("weights of a rank that made the last step", first_training());
  if (options_.buffers == BufferPolicy::kBroadcast) {
    buffers_->broadcast("buffers of a rank that made the last step", first_training());
  } else if (options_.buffers == BufferPolicy::kAverage) {
    const Roll& newest = roll_call_->last_forward();
    buffers_->average("buffers of those that made the last step",
                      {.from_here = newest.here, .ranks = newest.training, .first = newest.first_training});
  }
}

}  // namespace reigen::parallel
