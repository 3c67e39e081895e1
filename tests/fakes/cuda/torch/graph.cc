// LibTorch's CUDA graphs over the stand-in: the functions of the plug-in libreigen_torch_cuda.so.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fakes/cuda/capture.h"
#include "fakes/cuda/device.h"
#include "fakes/cuda/torch/recording.h"
#include "tensor/gpu/graph_calls.h"

namespace reigen::testing::played {

namespace {

std::atomic<int> pool_now{0};

cudaStream_t current_stream() {
  const c10::impl::VirtualGuardImpl gpus(at::kCUDA);
  return static_cast<cudaStream_t>(gpus.getStreamNativeHandle(gpus.getStream(gpus.getDevice())));
}

// Whether work on the current stream is captured now.
bool is_captured() { return pool_now != 0 && stand_in::is_captured(current_stream()); }

// Makes an argument of an operator in a replay.
using Maker = std::function<c10::IValue()>;

Maker maker_of(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().device().is_cuda()) {
    return [view = View(value.toTensor())] { return c10::IValue(view.tensor()); };
  }
  if (value.isTensorList() || value.isOptionalTensorList()) {
    std::vector<Maker> items;
    for (const c10::IValue& item : value.toListRef()) items.push_back(maker_of(item));
    const bool is_optional = value.isOptionalTensorList();
    return [items, is_optional] {
      c10::List<at::Tensor> tensors;
      c10::List<std::optional<at::Tensor>> optionals;
      for (const Maker& item : items) {
        const c10::IValue made = item();
        if (is_optional)
          optionals.push_back(made.isNone() ? std::optional<at::Tensor>() : made.toTensor());
        else
          tensors.push_back(made.toTensor());
      }
      return is_optional ? c10::IValue(optionals) : c10::IValue(tensors);
    };
  }
  if (value.isDevice()) return [] { return c10::IValue(c10::Device(c10::kCPU)); };
  return [value] { return value; };
}

struct Graph {
  int pool = 0;
  std::vector<std::function<void()>> work = {};
  at::Tensor random_state = {};
};

at::Generator& generator() {
  static at::Generator one = at::detail::getDefaultCPUGenerator();
  return one;
}

void* make() {
  static std::atomic<int> made{0};
  return new Graph{.pool = ++made};
}

// The random numbers that the capture draws do not count, as it runs nothing.
void begin(void* graph) {
  auto& own = *static_cast<Graph*>(graph);
  own.random_state = generator().get_state();
  stand_in::begin_capture(current_stream(), own.work);
  pool_now = own.pool;
}

void end(void* graph) {
  auto& own = *static_cast<Graph*>(graph);
  pool_now = 0;
  const std::string refused = stand_in::end_capture();
  generator().set_state(own.random_state);
  TORCH_CHECK(refused.empty(), "CUDA error: operation failed due to a previous error during capture (", refused, ")");
}

void replay(void* graph) {
  stand_in::queue_of(current_stream()).wait_until_idle();
  for (const auto& work : static_cast<Graph*>(graph)->work) work();
}

void destroy(void* graph) {
  const auto* const own = static_cast<Graph*>(graph);
  const int pool = own->pool;
  stand_in::queue_of(current_stream()).wait_until_idle();
  delete own;
  free_pool(pool);
}

}  // namespace

bool is_recorded() { return is_captured() && stand_in::are_tasks_recorded(); }
int memory_pool() { return is_captured() ? pool_now.load() : 0; }

void refuse_in_capture(const char* what) {
  if (!is_recorded()) return;
  (void)stand_in::is_refused(what, current_stream());
  TORCH_CHECK(false, "CUDA error: operation not permitted when stream is capturing (", what, ")");
}

View::View(const at::Tensor& tensor)
    : keeps_alive_(tensor.storage()),
      data_(tensor.numel() == 0 ? nullptr : tensor.const_data_ptr()),
      sizes_(tensor.sizes().vec()),
      strides_(tensor.strides().vec()),
      type_(tensor.scalar_type()) {}

at::Tensor View::tensor() const {
  const auto options = at::TensorOptions().dtype(type_);
  if (data_ == nullptr) return at::empty(sizes_, options);
  return at::from_blob(stand_in::reach(data_), sizes_, strides_, options);
}

void record_operation(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                      const std::vector<c10::IValue>& results) {
  std::vector<Maker> given;
  for (const c10::IValue& argument : arguments) given.push_back(maker_of(argument));
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& result : results) {
    if (result.isTensor()) tensors.push_back(result.toTensor());
    if (result.isTensorList()) {
      for (const at::Tensor& one : result.toTensorVector()) tensors.push_back(one);
    }
  }
  record_results(tensors, [op, given] {
    torch::jit::Stack stack;
    for (const Maker& one : given) stack.push_back(one());
    // LibTorch returns references to the arguments of an "out" operator, after it has dropped the arguments.
    const torch::jit::Stack kept = stack;
    op.callBoxed(&stack);
    std::vector<at::Tensor> made;
    for (const c10::IValue& result : stack) {
      if (result.isTensor()) made.push_back(result.toTensor());
      if (result.isTensorList()) {
        for (const at::Tensor& one : result.toTensorVector()) made.push_back(one);
      }
    }
    return made;
  });
}

void record_results(const std::vector<at::Tensor>& results, std::function<std::vector<at::Tensor>()> compute) {
  std::vector<std::optional<View>> places;
  for (const at::Tensor& one : results) {
    if (one.defined() && one.device().is_cuda())
      places.emplace_back(View(one));
    else
      places.emplace_back(std::nullopt);
  }
  stand_in::record([places, compute = std::move(compute)] {
    const at::AutoDispatchBelowAutograd below;
    const std::vector<at::Tensor> made = compute();
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i]) places[i]->tensor().copy_(made.at(i));
    }
  });
}

}  // namespace reigen::testing::played

namespace reigen::tensor {

const GraphCalls& graph_calls() {
  namespace played = reigen::testing::played;
  static constexpr GraphCalls kCalls{.make = &played::make,
                                     .begin = &played::begin,
                                     .end = &played::end,
                                     .replay = &played::replay,
                                     .destroy = &played::destroy};
  return kCalls;
}

}  // namespace reigen::tensor
