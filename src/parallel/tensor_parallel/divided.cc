#include "parallel/tensor_parallel/divided.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/intrusive_ptr.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reigen/base/error.h"
#include "tensor/hooks/intercept.h"
#include "tensor/hooks/taken_over.h"

namespace reigen::parallel {
namespace {

using Stack = std::vector<c10::IValue>;
using DividedPointer = std::shared_ptr<const Divided>;

// The weak pointer keeps the address from being given to another tensor.
struct Entry {
  c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl> tensor;
  DividedPointer divided;
};
struct Table {
  std::shared_mutex mutex;
  std::unordered_map<const at::TensorImpl*, Entry> weights;
};
Table& table() {
  static auto* const all = new Table;  // never destroyed, because tensors may outlive main()
  return *all;
}

bool is_whole(const Divided& weight) {
  return weight.kind == Style::Kind::kSequence || weight.kind == Style::Kind::kPositions;
}

// The entry of the tensor, or of the matrix of which it is a view. A view of a whole weight has none, because the
// operation that made the view was intercepted.
DividedPointer find(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  const std::shared_lock lock(table().mutex);
  const auto& weights = table().weights;
  if (const auto own = weights.find(tensor.unsafeGetTensorImpl()); own != weights.end()) return own->second.divided;
  if (!tensor.is_view()) return nullptr;
  const auto base = weights.find(tensor._base().unsafeGetTensorImpl());
  if (base == weights.end() || is_whole(*base->second.divided)) return nullptr;
  return base->second.divided;
}

at::Tensor tensor_at(const Stack& arguments, std::size_t index) {
  if (index >= arguments.size() || !arguments[index].isTensor()) return {};
  return arguments[index].toTensor();
}

// The whole weight of which `tensor` is the transpose, or an undefined tensor.
at::Tensor transposed_weight(const at::Tensor& tensor) {
  if (tensor.dim() != 2 || !tensor.is_view()) return {};
  const at::Tensor base(tensor._base());
  const bool is_transpose = base.dim() == 2 && base.size(0) == tensor.size(1) && base.size(1) == tensor.size(0) &&
                            base.stride(0) == tensor.stride(1) && base.stride(1) == tensor.stride(0);
  return is_transpose ? base : at::Tensor();
}

// A product with a weight: x·weight' + bias.
struct Product {
  at::Tensor x;
  at::Tensor weight;
  at::Tensor bias;
};

bool is_one(const c10::IValue& value) { return value.toScalar().toDouble() == 1; }

// The product that an operation computes, if it is one. C++'s Linear calls addmm or matmul with the transpose.
std::optional<Product> product_of(const std::string& operation, const Stack& arguments) {
  if (operation == "aten::linear") {
    return Product{tensor_at(arguments, 0), tensor_at(arguments, 1), tensor_at(arguments, 2)};
  }
  if (operation == "aten::addmm" && is_one(arguments[3]) && is_one(arguments[4])) {
    const at::Tensor weight = transposed_weight(tensor_at(arguments, 2));
    if (weight.defined()) return Product{tensor_at(arguments, 1), weight, tensor_at(arguments, 0)};
  }
  if (operation == "aten::matmul" || operation == "aten::mm") {
    const at::Tensor weight = transposed_weight(tensor_at(arguments, 1));
    if (weight.defined()) return Product{tensor_at(arguments, 0), weight, {}};
  }
  return std::nullopt;
}

at::Tensor compute(const Divided& divided, const Product& product) {
  if (divided.kind == Style::Kind::kRow) {
    return row_parallel_linear(product.x, product.weight, product.bias, divided.region);
  }
  if (!divided.gather_output) {
    return column_parallel_linear(product.x, product.weight, product.bias, divided.region);
  }
  // The bias of such a layer is whole: a Linear may add it to the gathered result by an operation of its own.
  const at::Tensor own = column_parallel_linear(product.x, product.weight, {}, divided.region);
  const at::Tensor all = gather_results(own, own.dim() - 1, divided.region.group);
  return product.bias.defined() ? all + product.bias : all;
}

[[noreturn]] void refuse(const Divided& divided, const std::string& operation) {
  throw InvalidArgument(Report{
      .what = fmt::format("[tensor_parallel] parameter {} is divided among {} ranks, and cannot be used in this way",
                          divided.name, divided.region.group.size()),
      .got = operation,
      .expected = divided.kind == Style::Kind::kVocabulary ? "an embedding or a linear layer" : "a linear layer",
      .fix = "leave the module out of the plan, or call its forward only"});
}

// Operations that make nothing of a weight's values.
bool is_look(const std::string& operation) {
  static const std::set<std::string> kLooks = {
      "aten::data",        "aten::detach",   "aten::is_leaf", "aten::numel",  "aten::output_nr", "aten::requires_grad_",
      "aten::retain_grad", "aten::set_data", "aten::size",    "aten::stride", "aten::_version"};
  return kLooks.contains(operation);
}

// Operations that give a view of a weight. A view of a matrix is a divided weight itself.
bool is_view(const std::string& operation) {
  static const std::set<std::string> kViews = {"aten::alias",     "aten::as_strided", "aten::expand", "aten::t",
                                               "aten::transpose", "aten::view",       "aten::view_as"};
  return kViews.contains(operation);
}

// Whether the operation writes to its argument `index`.
bool writes(const c10::OperatorHandle& operation, std::size_t index) {
  const auto* const alias = operation.schema().arguments()[index].alias_info();
  return alias != nullptr && alias->isWrite();
}

// An operation with a divided weight among its arguments.
class Interception {
 public:
  Interception(const c10::OperatorHandle& operation, Stack arguments)
      : operation_(operation), name_(operation.schema().name()), arguments_(std::move(arguments)) {}

  // The result that Reigen computes. Nothing if LibTorch must compute it, with arguments() as they are then.
  std::optional<at::Tensor> result() {
    if (const auto product = product_of(name_, arguments_)) {
      const DividedPointer divided = find(product->weight);
      if (divided && !is_whole(*divided)) return compute(*divided, *product);
    }
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      const DividedPointer divided = find(tensor_at(arguments_, i));
      if (!divided) continue;
      if (divided->kind == Style::Kind::kVocabulary && name_ == "aten::embedding") return embed(*divided);
      if (divided->kind == Style::Kind::kPositions) {
        if (auto own = positions(*divided)) return own;
      }
      if (!at::GradMode::is_enabled() || is_look(name_) || writes(operation_, i)) continue;
      if (divided->kind != Style::Kind::kSequence) {
        if (is_view(name_)) continue;
        refuse(*divided, name_);
      }
      // The weight is whole and computes on a part of the sequence, so its gradient is the sum over the ranks.
      arguments_[i] = copy_to_ranks(arguments_[i].toTensor(), divided->region.group);
    }
    return std::nullopt;
  }

  const Stack& arguments() const { return arguments_; }

 private:
  at::Tensor embed(const Divided& divided) const {
    const bool is_plain = !arguments_[3].toBool() && !arguments_[4].toBool();
    if (!is_plain) refuse(divided, "aten::embedding with scaled or sparse gradients");
    return vocab_parallel_embedding(tensor_at(arguments_, 1), tensor_at(arguments_, 0), divided.vocabulary,
                                    divided.region);
  }

  // Some rows of a table of positions, or nothing if the operation takes no rows. This rank gets those of its part of
  // the sequence.
  std::optional<at::Tensor> positions(const Divided& divided) const {
    const bool by_number = name_ == "aten::embedding";
    if (!by_number && name_ != "aten::narrow" && name_ != "aten::slice") return std::nullopt;
    Stack stack = arguments_;
    operation_.callBoxed(&stack);
    const std::int64_t dimension = by_number ? tensor_at(arguments_, 1).dim() - 1 : 0;
    return take_part(stack.front().toTensor(), dimension, divided.region.group);
  }

  const c10::OperatorHandle& operation_;
  const std::string& name_;
  Stack arguments_;
};

void intercepted(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, Stack* stack) {
  const std::size_t count = operation.schema().arguments().size();
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(count);
  const bool uses_one = std::any_of(
      first, stack->end(), [](const c10::IValue& value) { return value.isTensor() && find(value.toTensor()); });
  if (uses_one) {
    Interception one(operation, Stack(first, stack->end()));
    std::optional<at::Tensor> result;
    {
      const tensor::Uncaught inner{tensor::Where::kUse};
      result = one.result();
    }
    stack->erase(first, stack->end());
    if (result) return stack->push_back(c10::IValue(*result));
    stack->insert(stack->end(), one.arguments().begin(), one.arguments().end());
  }
  // An operation may be composed of others, which must be intercepted too.
  tensor::pass_on(tensor::Where::kUse, operation, keys, stack);
}

}  // namespace

void remember(const at::Tensor& weight, Divided divided) {
  tensor::take_over(weight);
  const std::unique_lock lock(table().mutex);
  std::erase_if(table().weights, [](const auto& entry) { return entry.second.tensor.expired(); });
  table().weights.insert_or_assign(weight.unsafeGetTensorImpl(),
                                   Entry{.tensor = decltype(Entry::tensor)(weight.getIntrusivePtr()),
                                         .divided = std::make_shared<const Divided>(std::move(divided))});
}

void use_divided_weights_on_this_thread() { tensor::intercept_on_this_thread(tensor::Where::kUse, &intercepted); }

}  // namespace reigen::parallel
