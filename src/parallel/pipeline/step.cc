#include "parallel/pipeline/step.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/check.h"

namespace reigen::parallel {
namespace {

using schedule::Action;
using ActionKind = schedule::Kind;

bool is_backward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput || kind == ActionKind::kBackwardWeight;
}

void append(nn::Carry& tensors, const nn::Carry& more) { tensors.insert(tensors.end(), more.begin(), more.end()); }

// The tensors, which leave the map.
template <class Key>
nn::Carry taken(std::map<Key, nn::Carry>& from, const Key& key) {
  nn::Carry tensors = std::move(from.at(key));
  from.erase(key);
  return tensors;
}

// The tensors that backward gives a gradient to.
nn::Carry requiring_gradients(const nn::Carry& tensors) {
  nn::Carry result;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(result),
               [](const at::Tensor& tensor) { return tensor.requires_grad(); });
  return result;
}

// The same values for a stage of this rank. Each stage runs its own backward, as if a message had brought them.
// A send reads its tensors while later actions run. So a tensor whose memory is sent too is copied if the stage could
// write to it: LibTorch refuses to write to one that requires a gradient.
nn::Carry handed_over(const nn::Carry& tensors, const nn::Carry& sent) {
  nn::Carry result;
  for (const at::Tensor& tensor : tensors) {
    const bool is_read = !tensor.requires_grad() && std::any_of(sent.begin(), sent.end(), [&](const at::Tensor& other) {
      return other.is_alias_of(tensor);
    });
    result.push_back((is_read ? tensor.clone() : tensor.detach()).requires_grad_(tensor.requires_grad()));
  }
  return result;
}

}  // namespace

StepRun::StepRun(const Stages& stages, const StageLinks& links, const schedule::Schedule& schedule, int rank,
                 const PipelineStep& what, Messages& messages, std::optional<LastStage>& last, PipelineReport& report)
    : stages_(stages),
      links_(links),
      schedule_(schedule),
      rank_(rank),
      what_(what),
      messages_(messages),
      last_(last),
      report_(report) {
  report_ = {};
  report_.micro_batches = schedule.micro_batches;
  report_.in_flight = {.by_stage = std::vector<int>(schedule.placement.size()),
                       .by_rank = std::vector<int>(static_cast<std::size_t>(schedule.ranks))};
}

double StepRun::now_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void StepRun::run(const std::function<void()>& before_last_backward) {
  const std::vector<Action>& list = schedule_.actions[static_cast<std::size_t>(rank_)];
  const auto last = std::find_if(list.rbegin(), list.rend(), [this](const Action& action) {
    return is_backward(action.kind) && stages_.trains_in(action.stage);
  });
  for (const Action& action : list) {
    if (last != list.rend() && &action == &*last) before_last_backward();
    act(action);
  }
  const double from = now_s();
  messages_.finish();
  report_.total = now_s();
  report_.waiting += report_.total - from;
}

void StepRun::run_forwards() {
  only_forwards_ = true;
  const std::vector<Action>& list = schedule_.actions[static_cast<std::size_t>(rank_)];
  for (std::size_t i = 0; i < list.size(); ++i) {
    act(list[i]);
    const bool goes_on = i + 1 < list.size() && is_send(list[i + 1].kind);
    if (!goes_on) in_flight_.clear();
  }
  messages_.finish();
}

void StepRun::compute(const Action& action) {
  const auto body = [&] {
    switch (action.kind) {
      case ActionKind::kForward: forward(action.stage, action.micro_batch); break;
      case ActionKind::kBackwardWeight: backward_weights(action); break;
      default: backward(action);
    }
  };
  if (!what_.around) return body();
  int runs = 0;
  what_.around(action.kind, action.micro_batch, [&] {
    ++runs;
    body();
  });
  REIGEN_CHECK(runs == 1, "[pipeline] PipelineStep::around called run() {} times\n  expected: once", runs);
}

void StepRun::act(const Action& action) {
  now_ = action;
  const Key key{action.stage, action.micro_batch};
  waited_ = 0;
  const double from = now_s();
  switch (action.kind) {
    case ActionKind::kForward:
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
    case ActionKind::kBackwardWeight: compute(action); break;
    case ActionKind::kSendForward:
      messages_.send(action, rank_of(action.peer), in_flight_.at(key).outputs.at(action.peer));
      break;
    case ActionKind::kReceiveForward: messages_.expect(action, rank_of(action.peer)); break;
    case ActionKind::kSendBackward:
      messages_.send(action, rank_of(action.peer), taken(gradients_, {action.peer, action.stage, action.micro_batch}));
      break;
    case ActionKind::kReceiveBackward:
      messages_.expect(action, rank_of(action.peer), requiring_gradients(in_flight_.at(key).outputs.at(action.peer)));
      break;
    default: REIGEN_ASSERT(false, "{} has no place in a pipeline", to_text(action));
  }
  const double to = now_s();
  if (is_compute(action.kind)) {
    (action.kind == ActionKind::kForward ? report_.forward : report_.backward) += to - from - waited_;
    report_.waiting += waited_;
    report_.spans.push_back({action, from + waited_, to});
  }
  if (action.kind == ActionKind::kForward) note_in_flight(action.stage);
}

// Only F makes the number of activations grow.
void StepRun::note_in_flight(int stage) {
  const auto by_rank = static_cast<int>(in_flight_.size());
  const auto by_stage = static_cast<int>(
      std::count_if(in_flight_.begin(), in_flight_.end(), [&](const auto& one) { return one.first.first == stage; }));
  auto& most_of_rank = report_.in_flight.by_rank[static_cast<std::size_t>(rank_)];
  auto& most_of_stage = report_.in_flight.by_stage[static_cast<std::size_t>(stage)];
  most_of_rank = std::max(most_of_rank, by_rank);
  most_of_stage = std::max(most_of_stage, by_stage);
}

nn::Carry StepRun::wait_for(const Action& receive) {
  const double from = now_s();
  nn::Carry tensors = messages_.take(receive);
  const double to = now_s();
  waited_ += to - from;
  report_.spans.push_back({receive, from, to});
  return tensors;
}

ByStage StepRun::inputs_of(int stage, int micro_batch) {
  ByStage inputs;
  if (is_first(stage) && !is_last(stage)) inputs[stage - 1] = what_.input(micro_batch);
  for (const int source : links_.sources_of(stage)) {
    inputs[source] = is_local(source) ? taken(inputs_, {source, stage, micro_batch})
                                      : wait_for({ActionKind::kReceiveForward, stage, micro_batch, source});
  }
  return inputs;
}

// Of what the stage has given to `target`.
nn::Carry StepRun::gradients_of(int stage, int micro_batch, int target) {
  return is_local(target) ? taken(gradients_, {stage, target, micro_batch})
                          : wait_for({ActionKind::kReceiveBackward, stage, micro_batch, target});
}

bool StepRun::recomputes(int stage) const {
  const auto [first, end] = stages_.units_of(stage);
  for (std::size_t i = first; i < end; ++i) {
    if (stages_.units()[i].has(nn::Layer::kRecompute)) return true;
  }
  return false;
}

void StepRun::run_last(int stage, int micro_batch, const ByStage& inputs, const std::function<void()>& body) {
  const auto [first, end] = stages_.units_of(stage);
  last_.emplace(links_.skips(), first, links_.arrived(stage, inputs));
  try {
    body();
  } catch (...) {
    last_.reset();
    throw;
  }
  const std::size_t ran = last_->ran();
  const nn::Carry input = last_->input();
  last_.reset();
  REIGEN_CHECK(
      ran == end - first,
      "[pipeline] the loss did not run the last stage once\n  got: {} calls of its {} units   expected: one for "
      "each\n  fix: call the model's forward once in PipelineStep::loss",
      ran, end - first);
  if (what_.checks_input && first > 0) check_input(input, what_.input(micro_batch));
}

void StepRun::check_input(const nn::Carry& given, const nn::Carry& expected) const {
  const at::NoGradGuard no_grad;
  const bool is_same = given.size() == expected.size() &&
                       std::equal(given.begin(), given.end(), expected.begin(), [](const auto& a, const auto& b) {
                         return a.defined() == b.defined() && (!a.defined() || (a.sizes() == b.sizes() && a.equal(b)));
                       });
  REIGEN_CHECK(
      is_same,
      "[pipeline] the model's forward does not give its first unit, {}, the input of the step\n  got: other "
      "tensors than PipelineStep::input (Task::first_input) gives   expected: the same: the ranks of the first "
      "stage use them\n  fix: compute nothing before the first unit: put it into the unit, or into input()",
      stages_.units().front().name());
}

void StepRun::forward(int stage, int micro_batch) {
  Activation made;
  made.inputs = inputs_of(stage, micro_batch);
  if (is_last(stage)) {
    run_last(stage, micro_batch, made.inputs, [&] { made.loss = what_.loss(micro_batch); });
    REIGEN_CHECK(
        only_forwards_ || (made.loss.defined() && made.loss.numel() == 1),
        "[pipeline] the loss of micro-batch {} is not one number\n  got: {}   expected: a tensor with one element",
        micro_batch, made.loss.defined() ? fmt::format("{} elements", made.loss.numel()) : "an undefined tensor");
  } else {
    const auto [first, end] = stages_.units_of(stage);
    nn::Between between = links_.arrived(stage, made.inputs);
    links_.skips().call(stages_.units(), first, end, between);
    made.outputs = links_.leaving(stage, between);
    nn::Carry sent;
    for (const auto& [target, tensors] : made.outputs) {
      check_can_pass(stage, target, tensors);
      if (!is_local(target)) append(sent, tensors);
    }
    for (const auto& [target, tensors] : made.outputs) {
      if (is_local(target)) inputs_[{stage, target, micro_batch}] = handed_over(tensors, sent);
    }
  }
  in_flight_[{stage, micro_batch}] = std::move(made);
}

void StepRun::backward(const Action& action) {
  const auto [kind, stage, micro_batch, peer] = action;
  const auto found = in_flight_.find({stage, micro_batch});
  Activation& activation = found->second;
  nn::Carry roots, gradients, inputs;
  if (is_last(stage)) roots = requiring_gradients({activation.loss});
  for (const auto& [target, tensors] : activation.outputs) {
    append(roots, requiring_gradients(tensors));
    append(gradients, gradients_of(stage, micro_batch, target));
  }
  for (const auto& [source, tensors] : activation.inputs) append(inputs, requiring_gradients(tensors));
  if (kind == ActionKind::kBackwardInput) {
    // A unit that computes its activations again does so once, and computes all gradients then.
    activation.weights.emplace(roots, gradients, recomputes(stage) ? nn::Carry{} : inputs);
  } else if (!roots.empty()) {
    torch::autograd::backward(roots, gradients);
  }
  for (const int source : links_.sources_of(stage)) {
    nn::Carry& of_input = gradients_[{source, stage, micro_batch}];
    for (const at::Tensor& tensor : requiring_gradients(activation.inputs.at(source))) {
      of_input.push_back(tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor));
    }
  }
  if (kind == ActionKind::kBackward) in_flight_.erase(found);
}

void StepRun::backward_weights(const Action& action) {
  const auto found = in_flight_.find({action.stage, action.micro_batch});
  found->second.weights->weights();
  in_flight_.erase(found);
}

}  // namespace reigen::parallel
