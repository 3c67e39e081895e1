#include "parallel/exchange/joined.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <utility>

namespace reigen::parallel {

Joined::Joined(Communicator world, std::vector<ParameterRange> ranges, const JoinOptions& options)
    : world_(std::move(world)), ranges_(std::move(ranges)), roll_call_(world_, options) {}

const Roll& Joined::answer(const std::string& tag) {
  roll_call_.ask(Activity::kNone, tag);
  return roll_call_.answer();
}

void Joined::announce_forward(const std::string& tag) {
  roll_call_.ask(Activity::kForward, tag);
  roll_call_.answer();
}

// The ranks that made the forward before this one have the newest buffers.
Participants Joined::participants() const {
  const Roll& newest = roll_call_.forward_before();
  return {.first = roll_call_.last().first_training,
          .newest = {.from_here = newest.here, .ranks = newest.training, .first = newest.first_training}};
}

void Joined::begin(const Round& round) {
  // Weights are not compared: a rank whose data has ended may make no more steps, so its weights may differ.
  round_ = {.step = round.step, .compares_weights = false};
  announced_ = Announced::kNot;
  waiting_.clear();
  inner_->begin(round_);
}

void Joined::begin_of_others(const Round& round) {
  begin(round);
  announced_ = Announced::kAnswered;
}

void Joined::ask() {
  announced_ = Announced::kAsked;
  roll_call_.ask(Activity::kReduction, fmt::format("step {} who still trains", round_.step));
}

void Joined::hear() {
  announced_ = Announced::kAnswered;
  roll_call_.answer();
  for (const std::size_t parameter : std::exchange(waiting_, {})) inner_->ready(parameter);
}

void Joined::ready(std::size_t parameter) {
  if (announced_ == Announced::kAnswered) return inner_->ready(parameter);
  waiting_.push_back(parameter);
  if (announced_ == Announced::kNot) ask();
  world_.poll();
  if (roll_call_.is_answered()) hear();
}

void Joined::abandon() {
  waiting_.clear();
  if (announced_ == Announced::kAsked) hear();
  inner_->abandon();
}

void Joined::finish(int) {
  if (announced_ == Announced::kNot) ask();
  if (announced_ == Announced::kAsked) hear();
  inner_->finish(roll_call_.last().first_training);
  const double correction = roll_call_.correction();
  if (correction == 1) return;
  const at::NoGradGuard no_grad;
  for (const ParameterRange& range : ranges_) range.gradients().mul_(correction);
}

}  // namespace reigen::parallel
