// Listens to what the units of a model pass on.
// Thread rule: used only by the thread of its rank. Between begin() and end() another thread may run forward and
// backward, one at a time.
#pragma once

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/nn/unit.h"

namespace reigen::train {

// What a unit passed on in one forward, and the gradients that reached it. Backward fills the gradients in.
struct Passed {
  std::vector<at::Tensor> outputs = {};
  std::vector<at::Tensor> gradients = {};
};

// passed()[u][i] is forward i of unit u since begin(). clear() drops them.
class UnitListener {
 public:
  // Throws InvalidArgument if something else observes a unit.
  explicit UnitListener(std::vector<nn::Unit> units) : units_(std::move(units)) {
    for (const nn::Unit& unit : units_) {
      if (!unit.has(nn::Layer::kTrace)) continue;
      throw InvalidArgument(Report{.what = fmt::format("train.verify cannot observe unit {}", unit.name()),
                                   .got = "a function at its layer kTrace",
                                   .fix = "detach it, or leave train.verify out"});
    }
    for (std::size_t u = 0; u < units_.size(); ++u) {
      units_[u].attach(nn::Layer::kTrace, [this, u](const nn::Carry& input, const nn::Unit::Forward& inner) {
        nn::Carry output = inner(input);
        if (listens_) note(u, output);
        return output;
      });
    }
  }
  ~UnitListener() {
    for (const nn::Unit& unit : units_) unit.detach(nn::Layer::kTrace);
  }
  UnitListener(const UnitListener&) = delete;  // the units have its address
  UnitListener& operator=(const UnitListener&) = delete;

  void begin() {
    clear();
    listens_ = true;
  }
  void end() { listens_ = false; }
  void clear() { passed_.assign(units_.size(), {}); }
  const std::vector<nn::Unit>& units() const { return units_; }
  const std::vector<std::vector<std::shared_ptr<Passed>>>& passed() const { return passed_; }

 private:
  // Each output becomes a node of its own in the graph, because a unit may return a tensor and a value computed from
  // it: the hook then gets the gradient of the output alone.
  void note(std::size_t unit, nn::Carry& output) {
    const auto passed = std::make_shared<Passed>();
    passed->gradients.resize(output.size());
    for (std::size_t k = 0; k < output.size(); ++k) {
      passed->outputs.push_back(output[k].defined() ? output[k].detach().clone() : at::Tensor());
      if (!output[k].defined() || !output[k].requires_grad()) continue;
      output[k] = output[k].view_as(output[k]);
      output[k].register_hook([passed, k](const at::Tensor& gradient) {
        if (gradient.defined()) passed->gradients[k] = gradient.detach().clone();
        return gradient;
      });
    }
    passed_[unit].push_back(passed);
  }

  std::vector<nn::Unit> units_;
  std::vector<std::vector<std::shared_ptr<Passed>>> passed_;
  bool listens_ = false;
};

}  // namespace reigen::train
