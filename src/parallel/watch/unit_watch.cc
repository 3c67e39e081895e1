#include "parallel/watch/unit_watch.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "parallel/weights/call_end.h"

namespace reigen::parallel {
namespace {

// Whether the backward that runs goes through the micro-batch.
bool is_in_backward(const UnitOrder::MicroBatch& micro_batch) {
  const auto* const nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (nodes == nullptr) return false;
  for (const std::vector<UnitOrder::Call>& calls : micro_batch.of_unit) {
    for (const UnitOrder::Call& call : calls) {
      const auto node = call.node.lock();
      if (node && nodes->contains(node.get())) return true;
    }
  }
  return false;
}

}  // namespace

UnitWatch::UnitWatch(std::vector<nn::Unit> units) : units_(std::move(units)), order_(units_.size()) {}

UnitWatch::~UnitWatch() { detach(); }

void UnitWatch::detach() {
  if (!on_enter_) return;
  on_enter_ = nullptr;
  for (const nn::Unit& unit : units_) unit.detach(nn::Layer::kOrder);
}

void UnitWatch::attach(std::function<void(std::size_t)> on_enter) {
  for (std::size_t i = 0; i < units_.size(); ++i) {
    units_[i].attach(nn::Layer::kOrder,
                     [weak = weak_from_this(), i](const nn::Carry& input, const nn::Unit::Forward& inner) {
                       const auto self = weak.lock();
                       return self ? self->run(i, input, inner) : inner(input);
                     });
  }
  on_enter_ = std::move(on_enter);
}

void UnitWatch::begin_forward() {
  trains_ = at::GradMode::is_enabled();
  backward_ = -1;
  order_.end_backward();
  order_.begin_forward();
}

void UnitWatch::end_backward() {
  backward_ = -1;
  order_.end_backward();
}

nn::Carry UnitWatch::run(std::size_t unit, const nn::Carry& input, const nn::Unit::Forward& inner) {
  if (torch::autograd::get_current_graph_task_id() != -1) return run_again(unit, input, inner);
  if (!trains_) return inner(input);
  const std::shared_ptr<UnitOrder::MicroBatch> micro_batch = order_.current();
  const std::size_t begin = order_.begin_call();
  nn::Carry output = inner(input);
  const std::size_t end = order_.end_call();
  // The graph node at the end of the call owns the micro-batch, and order_ has a weak pointer to the micro-batch. So
  // order_ finds the micro-batch as long as its graph lives.
  CallEnd ended = with_end(input, std::move(output), [weak = weak_from_this(), micro_batch, unit, end] {
    if (const auto self = weak.lock()) self->enter(unit, end);
  });
  UnitOrder::add(*micro_batch, unit, {.begin = begin, .end = end, .node = ended.node});
  return std::move(ended.output);
}

// The unit is within a part of the model that is computed again. The recomputed part has a backward of its own, inside
// the outer backward. This inner backward comes through the unit.
nn::Carry UnitWatch::run_again(std::size_t unit, const nn::Carry& input, const nn::Unit::Forward& inner) {
  const std::size_t end = order_.end_within(unit);
  nn::Carry output = inner(input);
  if (end == 0) return output;
  return with_end(input, std::move(output),
                  [weak = weak_from_this(), unit, end] {
                    if (const auto self = weak.lock()) self->reach(unit, end);
                  })
      .output;
}

void UnitWatch::enter(std::size_t unit, std::size_t end) {
  const int backward = torch::autograd::get_current_graph_task_id();
  if (backward != backward_) {
    backward_ = backward;
    UnitOrder::MicroBatches through = order_.live();
    std::erase_if(through, [](const auto& one) { return !is_in_backward(*one); });
    order_.begin_backward(std::move(through));
  }
  reach(unit, end);
}

void UnitWatch::reach(std::size_t unit, std::size_t end) {
  order_.enter(end);
  if (on_enter_) on_enter_(unit);
}

}  // namespace reigen::parallel
