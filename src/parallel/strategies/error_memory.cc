#include "parallel/strategies/error_memory.h"

#include <ATen/ATen.h>

#include "parallel/strategies/average.h"
#include "tensor/calls.h"

namespace reigen::parallel {

at::ScalarType wide_type(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

void ErrorMemory::attach(const std::vector<ParameterRange>& parameters) {
  for (const ParameterRange& range : parameters) {
    for (const tensor::Segment& segment : range.segments()) {
      memory_[segment.name] =
          at::zeros({segment.numel}, range.values().options().dtype(wide_type(range.values().scalar_type())));
    }
  }
}

at::Tensor ErrorMemory::add(const std::string& name, const at::Tensor& gradient) {
  return memory_.at(name).add_(gradient.view({-1}));
}

void ErrorMemory::settle(const Communicator& world) {
  std::vector<at::Tensor> all;
  for (const auto& [name, memory] : memory_) {
    if (memory.numel() > 0) all.push_back(memory);
  }
  if (!all.empty()) tensor::wait_for(begin_average(world, all, "error memory"), all.front());
}

void ErrorMemory::add_state(std::map<std::string, at::Tensor>& state) const {
  for (const auto& [name, memory] : memory_) state["error." + name] = memory;
}

}  // namespace reigen::parallel
