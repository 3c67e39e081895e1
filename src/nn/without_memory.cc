#include "reigen/nn/without_memory.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstddef>
#include <vector>

#include "nn/skip_writes.h"
#include "tensor/away_memory.h"

namespace reigen::nn {
namespace {

// A key that comes before all others, which LibTorch itself does not use.
constexpr auto kKey = c10::DispatchKey::DeferredInit;

// Guards that make tensors without memory, of this thread; without any, writes are skipped and no more.
thread_local int makers = 0;

// empty.memory_format(sizes, dtype, layout, device, pin_memory, memory_format)
bool makes_weights(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  if (makers == 0 || op.schema().name() != "aten::empty" || op.schema().overload_name() != "memory_format")
    return false;
  const c10::IValue& device = torch::jit::peek(stack, 3, op.schema().arguments().size());
  return device.isNone() || device.toDevice().is_cpu();
}

// A conversion of one without memory: Module::to(type).
bool converts_none(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  if (schema.name() != "aten::to" && schema.name() != "aten::_to_copy") return false;
  const c10::IValue& first = torch::jit::peek(stack, 0, schema.arguments().size());
  return first.isTensor() && tensor::is_away(first.toTensor());
}

at::ScalarType type_after(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const std::optional<int> place = schema.argumentIndexWithName("dtype");
  const std::size_t count = schema.arguments().size();
  const c10::IValue type = place ? torch::jit::peek(stack, static_cast<std::size_t>(*place), count) : c10::IValue();
  return type.isNone() ? torch::jit::peek(stack, 0, count).toTensor().scalar_type() : type.toScalarType();
}

bool writes_to_none(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const std::vector<c10::Argument>& arguments = schema.arguments();
  if (arguments.empty() || schema.returns().size() != 1) return false;
  const c10::AliasInfo* const alias = arguments.front().alias_info();
  if (alias == nullptr || !alias->isWrite()) return false;
  const c10::IValue& first = torch::jit::peek(stack, 0, arguments.size());
  return first.isTensor() && tensor::is_away(first.toTensor());
}

void instead(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::size_t count = schema.arguments().size();
  if (makes_weights(op, *stack)) {
    const std::vector<std::int64_t> shape = torch::jit::peek(*stack, 0, count).toIntVector();
    const c10::IValue type = torch::jit::peek(*stack, 1, count);
    torch::jit::drop(*stack, count);
    const c10::impl::ExcludeDispatchKeyGuard ours_is_done(kKey);
    stack->emplace_back(tensor::away_tensor(
        shape, type.isNone() ? at::typeMetaToScalarType(at::get_default_dtype()) : type.toScalarType()));
    return;
  }
  if (converts_none(schema, *stack)) {
    const at::Tensor from = torch::jit::peek(*stack, 0, count).toTensor();
    const at::ScalarType type = type_after(schema, *stack);
    torch::jit::drop(*stack, count);
    const c10::impl::ExcludeDispatchKeyGuard ours_is_done(kKey);
    stack->emplace_back(type == from.scalar_type() ? from : tensor::away_tensor(from.sizes(), type));
    return;
  }
  if (writes_to_none(schema, *stack)) {
    torch::jit::drop(*stack, count - 1);
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard ours_is_done(kKey);
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&instead>());
}

}  // namespace

struct WithoutMemory::Guard {
  c10::impl::IncludeDispatchKeyGuard on{kKey};
};

WithoutMemory::WithoutMemory() : guard_(std::make_unique<Guard>()) { ++makers; }
WithoutMemory::~WithoutMemory() { --makers; }

struct SkipWrites::Guard {
  c10::impl::IncludeDispatchKeyGuard on{kKey};
};

SkipWrites::SkipWrites() : guard_(std::make_unique<Guard>()) {}
SkipWrites::~SkipWrites() = default;

bool has_no_memory(const at::Tensor& tensor) { return tensor::is_away(tensor); }

}  // namespace reigen::nn
