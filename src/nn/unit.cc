#include "reigen/nn/unit.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>

#include <array>

#include "base/check.h"
#include "nn/failed_unit.h"

namespace reigen::nn {

namespace {

constexpr std::size_t kLayers = 6;  // number of Layers; at each Layer one function can wrap the unit's forward

std::size_t place_of(Layer layer) { return static_cast<std::size_t>(layer); }

std::string& failed() {
  static thread_local std::string name;
  return name;
}

const char* name_of(Layer layer) {
  switch (layer) {
    case Layer::kStage: return "stage";
    case Layer::kTrace: return "trace";
    case Layer::kOrder: return "order";
    case Layer::kRecompute: return "recompute";
    case Layer::kParameters: return "parameters";
    case Layer::kPrecision: break;
  }
  return "precision";
}

}  // namespace

struct Unit::State : std::enable_shared_from_this<Unit::State> {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  Forward forward;
  std::array<Around, kLayers> around;

  Carry run(std::size_t layer, const Carry& input) const {
    while (layer < kLayers && !around[layer]) ++layer;
    if (layer == kLayers) return forward(input);
    // Activation checkpointing keeps this function and calls it again in backward, perhaps after the model is
    // destroyed. So the function shares ownership of the state.
    return around[layer](
        input, [state = shared_from_this(), layer](const Carry& next) { return state->run(layer + 1, next); });
  }
};

Unit::Unit(std::string name, std::shared_ptr<torch::nn::Module> module, Forward forward)
    : state_(std::make_shared<State>()) {
  state_->name = std::move(name);
  state_->module = std::move(module);
  state_->forward = std::move(forward);
  REIGEN_CHECK(state_->module && state_->forward, "[unit {}] has no {}\n  expected: a module and its forward",
               state_->name, state_->module ? "forward" : "module");
}

const std::string& Unit::name() const { return state_->name; }

torch::nn::Module& Unit::module() const { return *state_->module; }

std::vector<at::Tensor> Unit::parameters() const { return state_->module->parameters(); }

void Unit::attach(Layer layer, Around around) const {
  Around& place = state_->around[place_of(layer)];
  REIGEN_CHECK(!place, "[unit {}] its layer \"{}\" is taken\n  fix: detach what is there first", state_->name,
               name_of(layer));
  place = std::move(around);
}

void Unit::detach(Layer layer) const { state_->around[place_of(layer)] = nullptr; }

bool Unit::has(Layer layer) const { return static_cast<bool>(state_->around[place_of(layer)]); }

const at::Tensor& Unit::only(const std::string& name, const Carry& carry) {
  REIGEN_CHECK(
      carry.size() == 1,
      "[unit {}] {} tensors came to a forward of one\n  expected: one tensor\n  fix: let its module take a "
      "nn::Carry; if a unit before gives a tensor by a skip connection, give fold() the skips, and the pipeline "
      "too (PipelineOptions::skips, Task::skips)",
      name, carry.size());
  return carry.front();
}

const std::string& failed_unit() { return failed(); }
void forget_failed_unit() { failed().clear(); }

Carry call(const Unit& unit, const Carry& input) {
  try {
    return unit.state_->run(0, input);
  } catch (...) {
    if (failed().empty()) failed() = unit.name();
    throw;
  }
}

at::Tensor call(const Unit& unit, const at::Tensor& input) {
  Carry output = call(unit, Carry{input});
  REIGEN_CHECK(output.size() == 1,
               "[unit {}] gave {} tensors\n  expected: one, as call() with a tensor returns one\n  fix: call it with a "
               "nn::Carry, "
               "or with fold() and the model's skip connections",
               unit.name(), output.size());
  return std::move(output.front());
}

Carry fold(const std::vector<Unit>& units, Carry input) {
  for (const Unit& unit : units) input = call(unit, input);
  return input;
}

at::Tensor fold(const std::vector<Unit>& units, at::Tensor input) {
  for (const Unit& unit : units) input = call(unit, input);
  return input;
}

std::vector<Unit> units_of(torch::nn::SequentialImpl& sequential, const std::string& prefix) {
  std::vector<Unit> units;
  const auto children = sequential.named_children();
  std::size_t i = 0;
  for (auto& part : sequential) {
    const std::string& name = children[i++].key();
    units.emplace_back(prefix.empty() ? name : prefix + "." + name, part.ptr(), [part](const Carry& input) mutable {
      REIGEN_CHECK(input.size() == 1, "[unit] {} tensors came to a part of a Sequential\n  expected: one",
                   input.size());
      return Carry{part.forward(input.front())};
    });
  }
  return units;
}

}  // namespace reigen::nn
