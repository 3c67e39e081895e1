#include "nn/random_state.h"

#include <ATen/Context.h>

#include <algorithm>
#include <mutex>

namespace reigen::nn {

RandomState::RandomState(const std::vector<at::Tensor>& tensors) {
  add(at::kCPU);
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_cuda()) continue;
    const at::Device device = tensor.device();
    if (std::none_of(states_.begin(), states_.end(), [&](const auto& state) { return state.first == device; })) {
      add(device);
    }
  }
}

void RandomState::add(at::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock(generator.mutex());
  states_.emplace_back(device, generator.get_state());
}

RandomState RandomState::now() const {
  RandomState result;
  for (const auto& [device, state] : states_) result.add(device);
  return result;
}

void RandomState::apply() const {
  for (const auto& [device, state] : states_) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

}  // namespace reigen::nn
