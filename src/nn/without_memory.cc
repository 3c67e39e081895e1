#include "reigen/nn/without_memory.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "nn/skip_writes.h"
#include "reigen/base/error.h"
#include "tensor/hooks/intercept.h"
#include "tensor/memory/away_memory.h"

namespace reigen::nn {
namespace {

// The numbers of WithoutMemory objects (`makers`) and of SkipWrites objects (`skippers`) that live on this thread.
thread_local int makers = 0;
thread_local int skippers = 0;

bool is_for_the_cpu(const c10::IValue& device) { return device.isNone() || device.toDevice().is_cpu(); }
bool is_for_a_gpu(const c10::IValue& device) { return !device.isNone() && device.toDevice().is_cuda(); }

c10::IValue argument(const c10::FunctionSchema& schema, const torch::jit::Stack& stack, const char* name) {
  const std::optional<int> place = schema.argumentIndexWithName(name);
  return place ? torch::jit::peek(stack, static_cast<std::size_t>(*place), schema.arguments().size()) : c10::IValue();
}

bool begins_with_none(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  if (schema.arguments().empty()) return false;
  const c10::IValue& first = torch::jit::peek(stack, 0, schema.arguments().size());
  return first.isTensor() && tensor::is_away(first.toTensor());
}

// torch::empty() calls empty.memory_format(sizes, dtype, layout, device, pin_memory, memory_format).
bool makes_weights(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  return makers > 0 && schema.name() == "aten::empty" && schema.overload_name() == "memory_format" &&
         is_for_the_cpu(argument(schema, stack, "device"));
}

// Whether the operation converts a tensor without memory to another type or moves it to another device, as Module::to()
// does.
bool converts_none(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const bool converts = schema.name() == "aten::to" || schema.name() == "aten::_to_copy";
  const c10::IValue device = argument(schema, stack, "device");
  return converts && begins_with_none(schema, stack) && schema.overload_name() != "other" &&
         (is_for_the_cpu(device) || is_for_a_gpu(device));
}

// Whether the operation changes the tensor but none of its values, as t_(), resize_() and requires_grad_() do.
bool is_about_the_tensor(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return op.hasTag(at::Tag::inplace_view) || name == "aten::requires_grad_" || name == "aten::set_data";
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool writes_to_none(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  return begins_with_none(schema, stack) && is_written(schema.arguments().front()) && schema.returns().size() == 1 &&
         !is_about_the_tensor(op);
}

// Throws if the operation writes into a tensor without memory that is a named output (`out`) or one of several written
// tensors. Such an operation cannot be skipped.
void refuse_other_writes(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  if (is_about_the_tensor(op)) return;
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    if (!is_written(schema.arguments()[i])) continue;
    const c10::IValue& value = torch::jit::peek(stack, i, schema.arguments().size());
    bool away = value.isTensor() && tensor::is_away(value.toTensor());
    if (value.isTensorList()) {
      const std::vector<at::Tensor> tensors = value.toTensorVector();
      away = std::any_of(tensors.begin(), tensors.end(), tensor::is_away);
    }
    if (!away) continue;
    throw InvalidArgument(Report{.what = fmt::format("{} cannot write into a tensor without memory", schema.name()),
                                 .expected = "an operation that changes its own tensor, as fill_() does",
                                 .fix = "set these values in initialize()"});
  }
}

void instead(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::size_t count = schema.arguments().size();
  const auto give = [&](const at::Tensor& result) {
    torch::jit::drop(*stack, count);
    stack->emplace_back(result);
  };
  const bool makes = makes_weights(schema, *stack);
  const bool converts = converts_none(schema, *stack);
  if (!makes && !converts && writes_to_none(op, *stack)) {
    torch::jit::drop(*stack, count - 1);
    return;
  }
  const tensor::Uncaught ours_is_done(tensor::Where::kFirst);
  const c10::IValue type = makes || converts ? argument(schema, *stack, "dtype") : c10::IValue();
  if (makes) {
    const at::ScalarType usual = at::typeMetaToScalarType(at::get_default_dtype());
    give(tensor::away_tensor(torch::jit::peek(*stack, 0, count).toIntVector(),
                             type.isNone() ? usual : type.toScalarType()));
  } else if (converts) {
    const at::Tensor from = torch::jit::peek(*stack, 0, count).toTensor();
    const c10::IValue device = argument(schema, *stack, "device");
    const at::ScalarType to_type = type.isNone() ? from.scalar_type() : type.toScalarType();
    at::Device to_device = device.isNone() ? from.device() : device.toDevice();
    if (to_device.is_cuda() && !to_device.has_index())
      to_device = c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).getDevice();
    const bool stays = to_type == from.scalar_type() && to_device == from.device();
    give(stays ? from : tensor::away_tensor(from.sizes(), to_type, to_device));
  } else {
    refuse_other_writes(op, *stack);
    ours_is_done.run(op, keys, stack);
  }
}

}  // namespace

bool skips_writes() { return makers > 0 || skippers > 0; }

struct WithoutMemory::Guard {
  tensor::Intercept on{tensor::Where::kFirst, &instead};
};

WithoutMemory::WithoutMemory() : guard_(std::make_unique<Guard>()) { ++makers; }
WithoutMemory::~WithoutMemory() { --makers; }

struct SkipWrites::Guard {
  tensor::Intercept on{tensor::Where::kFirst, &instead};
};

SkipWrites::SkipWrites() : guard_(std::make_unique<Guard>()) { ++skippers; }
SkipWrites::~SkipWrites() { --skippers; }

bool has_no_memory(const at::Tensor& tensor) { return tensor::is_away(tensor); }

}  // namespace reigen::nn
