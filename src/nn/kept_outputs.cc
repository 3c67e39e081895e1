#include "nn/kept_outputs.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "reigen/base/error.h"
#include "tensor/hooks/intercept.h"

namespace reigen::nn {

namespace {

thread_local KeptOutputs::Scope* current = nullptr;

bool lies_in(const c10::IValue& result, const at::Tensor& memory) {
  return result.isTensor() && result.toTensor().defined() && result.toTensor().has_storage() &&
         result.toTensor().storage().is_alias_of(memory.storage());
}

}  // namespace

struct KeptOutputs::Scope::Included {
  tensor::Intercept guard{tensor::Where::kBelowAutograd, &KeptOutputs::intercept};
};

std::shared_ptr<const Operations> find_operations(const std::vector<std::string>& names) {
  if (names.empty()) return nullptr;
  auto found = std::make_shared<Operations>();
  const auto all = c10::Dispatcher::singleton().getAllOpNames();
  for (const std::string& name : names) {
    const std::size_t before = found->size();
    for (const c10::OperatorName& one : all) {
      if (one.name != name) continue;
      const auto handle = c10::Dispatcher::singleton().findSchema(one);
      if (!handle) continue;
      const auto& schema = handle->schema();
      const bool gives_new =
          std::none_of(schema.returns().begin(), schema.returns().end(), [](const c10::Argument& result) {
            return result.alias_info() != nullptr || result.type()->kind() == c10::TypeKind::ListType;
          });
      // An operation that LibTorch composes of other operations above autograd is never intercepted below autograd.
      // Only the operations of which it is composed are intercepted.
      const bool is_made_of_others = handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
      if (gives_new && !schema.is_mutable() && !is_made_of_others) found->insert(one);
    }
    if (found->size() == before) {
      throw InvalidArgument(Report{.what = "[activation_checkpoint] no operation whose outputs can be kept",
                                   .got = name,
                                   .expected =
                                       "an operator below autograd whose results are new tensors, such as aten::mm "
                                       "(aten::linear and aten::matmul are made of it)",
                                   .fix = "nn::products() has those that are worth it"});
    }
  }
  return found;
}

KeptOutputs::Scope::Scope(KeptOutputs& outputs, Mode mode) : outputs_(outputs), mode_(mode) {
  if (!outputs.operations_) return;
  if (current != nullptr) {
    throw InvalidArgument(Report{.what = "[activation_checkpoint] a unit that keeps outputs lies within another one",
                                 .expected = "ActivationCheckpointOptions::keep of one of them only",
                                 .fix = "leave keep out for the inner or the outer units"});
  }
  if (mode == Mode::kKeep) outputs.kept_.clear();
  included_ = std::make_unique<Included>();
  current = this;
}

KeptOutputs::Scope::~Scope() {
  if (!included_) return;
  included_.reset();
  current = nullptr;
}

void KeptOutputs::intercept(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                            std::vector<c10::IValue>* stack) {
  // A kernel may call further operations. They are a part of the kernel's own operation, so they are not intercepted.
  const tensor::Uncaught below(tensor::Where::kBelowAutograd);
  Scope* scope = current;
  if (scope != nullptr && operation.schema().is_mutable()) scope->outputs_.copy_before_write(operation, *stack);
  if (scope == nullptr || !scope->outputs_.operations_->contains(operation.operator_name())) {
    below.run(operation, keys, stack);
    return;
  }
  if (scope->mode_ == Scope::Mode::kTake) {
    scope->outputs_.take(operation, scope->next_++, stack);
    return;
  }
  below.run(operation, keys, stack);
  scope->outputs_.keep(operation, *stack);
}

void KeptOutputs::keep(const c10::OperatorHandle& operation, const std::vector<c10::IValue>& stack) {
  One one{.operation = operation.operator_name(), .results = {}, .watched = {}, .random = {}};
  const std::size_t count = operation.schema().returns().size();
  one.results.assign(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  if (operation.hasTag(at::Tag::nondeterministic_seeded)) {
    std::vector<at::Tensor> outputs;
    for (const c10::IValue& result : one.results) {
      if (result.isTensor()) outputs.push_back(result.toTensor());
    }
    one.random.emplace(outputs);
  }
  kept_.push_back(std::move(one));
}

// Before an operation writes into a tensor, copies the kept outputs that lie in the memory of this tensor. The memory
// is compared, because tensors can share memory without being views of each other. For example, the result of
// _unsafe_view has its own version counter.
void KeptOutputs::copy_before_write(const c10::OperatorHandle& operation, const std::vector<c10::IValue>& stack) {
  const auto& arguments = operation.schema().arguments();
  const std::size_t first = stack.size() - arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].alias_info() == nullptr || !arguments[i].alias_info()->isWrite()) continue;
    const c10::IValue& argument = stack[first + i];
    if (argument.isTensor()) copy_what_lies_in(argument.toTensor());
    if (!argument.isTensorList()) continue;
    for (const at::Tensor& tensor : argument.toTensorVector()) copy_what_lies_in(tensor);
  }
}

void KeptOutputs::copy_what_lies_in(const at::Tensor& written) {
  if (!written.defined() || !written.has_storage()) return;
  const at::AutoDispatchBelowADInplaceOrView below;
  for (One& one : kept_) {
    for (c10::IValue& result : one.results) {
      if (!lies_in(result, written)) continue;
      const at::Tensor& kept = result.toTensor();
      result = at::empty_strided(kept.sizes(), kept.strides(), kept.options()).copy_(kept);
    }
  }
}

bool KeptOutputs::hold(const at::Tensor& tensor) const {
  for (const One& one : kept_) {
    for (const c10::IValue& result : one.results) {
      if (lies_in(result, tensor)) return true;
    }
  }
  return false;
}

void KeptOutputs::before_write(const at::Tensor& written) {
  if (current != nullptr) current->outputs_.copy_what_lies_in(written);
}

void KeptOutputs::watch(const std::vector<at::Tensor>& outputs) {
  for (const at::Tensor& output : outputs) {
    if (!output.defined() || !output.has_storage()) continue;
    const c10::VariableVersion& counter = output.unsafeGetTensorImpl()->version_counter();
    for (One& one : kept_) {
      for (const c10::IValue& result : one.results) {
        if (lies_in(result, output)) one.watched.push_back({counter, counter.current_version()});
      }
    }
  }
}

void KeptOutputs::take(const c10::OperatorHandle& operation, std::size_t index, std::vector<c10::IValue>* stack) const {
  if (index >= kept_.size() || !(kept_[index].operation == operation.operator_name())) {
    throw InvalidArgument(
        Report{.what = "[activation_checkpoint] the second forward runs other operations than the first",
               .got = operation.operator_name().name,
               .expected = index < kept_.size() ? kept_[index].operation.name : "no more of those that are kept",
               .fix = "a forward that computes the same each time"});
  }
  const One& one = kept_[index];
  for (const Watched& output : one.watched) {
    if (output.counter.current_version() == output.version) continue;
    throw InvalidArgument(
        Report{.what = fmt::format("[activation_checkpoint] an output of {} that was kept has been written to since",
                                   one.operation.name),
               .expected = "units whose outputs nothing changes in place, or that do not end with a kept operation",
               .fix = "do not write into the unit's output (relu_, add_), or leave the operation out of keep"});
  }
  if (one.random) one.random->apply();
  torch::jit::drop(*stack, operation.schema().arguments().size());
  for (std::size_t i = 0; i < one.results.size(); ++i) {
    if (!one.results[i].isTensor() || !one.results[i].toTensor().defined()) {
      stack->push_back(one.results[i]);
      continue;
    }
    // Returns a new tensor over the same memory. Autograd writes its history into the returned tensor, and the kept one
    // must remain without history.
    stack->push_back(one.results[i].toTensor().variable_data());
  }
}

bool is_kept_output(const at::Tensor& tensor) {
  // The node of the unit may be behind nodes that only hand its result on. If it is farther away, take() throws.
  constexpr int kNodes = 8;
  const at::Tensor owner = tensor.is_view() ? at::Tensor(tensor._base()) : tensor;
  std::shared_ptr<torch::autograd::Node> node = owner.grad_fn();
  for (int i = 0; i < kNodes && node != nullptr; ++i) {
    const auto* const keeper = dynamic_cast<const KeepsOutputs*>(node.get());
    if (keeper != nullptr) return keeper->keeps(tensor);
    const auto& edges = node->next_edges();
    node = edges.empty() ? nullptr : edges.front().function;
  }
  return false;
}

}  // namespace reigen::nn
