#include "parallel/tensor_parallel/divided.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "reigen/base/error.h"
#include "reigen/nn/sequence_part.h"
#include "tensor/hooks/intercept.h"
#include "tensor/hooks/taken_over.h"

namespace reigen::parallel {
namespace {

using Stack = std::vector<c10::IValue>;
using DividedPointer = std::shared_ptr<const Divided>;

DividedPointer entry_of(const at::Tensor& tensor) {
  return std::static_pointer_cast<const Divided>(tensor::taken_over(tensor));
}

// The entry of the tensor, or of the weight of which it is a view. A view of a weight of kind kSequence or kPositions
// has none, because the operation that made the view was intercepted.
DividedPointer find(const at::Tensor& tensor) {
  if (DividedPointer own = entry_of(tensor)) return own;
  if (!tensor.defined() || !tensor.is_view()) return nullptr;
  DividedPointer base = entry_of(at::Tensor(tensor._base()));
  return base && computes_layers(base->kind) ? base : nullptr;
}

bool has_divided(const c10::IValue& value) {
  if (value.isTensor()) return find(value.toTensor()) != nullptr;
  if (!value.isTensorList()) return false;
  const std::vector<at::Tensor> all = value.toTensorVector();
  return std::any_of(all.begin(), all.end(), [](const at::Tensor& one) { return find(one) != nullptr; });
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
  const Communicator& group = divided.region.group;
  if (divided.kind == Style::Kind::kShared) {
    const at::Tensor x = divided.region.sequence ? gather_parts(product.x, divided.region.dimension, group)
                                                 : copy_to_ranks(product.x, group);
    const at::Tensor bias = product.bias.defined() ? copy_to_ranks(product.bias, group) : product.bias;
    return at::linear(x, copy_to_ranks(product.weight, group), bias);
  }
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

// Operations that compute with a matrix. With a part of a weight they give a part of the result.
bool is_product(const std::string& operation) {
  static const std::set<std::string> kProducts = {
      "aten::addbmm", "aten::addmm", "aten::addmv",     "aten::baddbmm",       "aten::bilinear", "aten::bmm",
      "aten::conv1d", "aten::dot",   "aten::einsum",    "aten::inner",         "aten::linear",   "aten::matmul",
      "aten::mm",     "aten::mv",    "aten::tensordot", "aten::embedding_bag", "aten::embedding"};
  return kProducts.contains(operation);
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
    if (const auto product = is_plain() ? product_of(name_, arguments_) : std::nullopt) {
      const DividedPointer divided = find(product->weight);
      if (divided && computes_layers(divided->kind)) return compute(*divided, *product);
    }
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (arguments_[i].isTensorList()) {
        replace_in_list(i);
        continue;
      }
      const DividedPointer divided = find(tensor_at(arguments_, i));
      if (!divided) continue;
      if (divided->kind == Style::Kind::kVocabulary && name_ == "aten::embedding" && is_plain()) return embed(*divided);
      if (divided->kind == Style::Kind::kPositions) {
        if (auto own = positions(*divided)) return own;
      }
      if (writes(operation_, i) || is_look(name_)) continue;
      if (is_view(name_) && divided->kind == Style::Kind::kShared) continue;
      if (is_whole(divided->kind)) {
        arguments_[i] = summed(arguments_[i].toTensor(), *divided);
      } else if (is_product(name_) || (at::GradMode::is_enabled() && !is_view(name_))) {
        refuse(*divided, name_);
      }
    }
    return std::nullopt;
  }

  const Stack& arguments() const { return arguments_; }

 private:
  // Whether it is the operation itself, and not one that writes to a tensor of the caller, for example.
  bool is_plain() const { return operation_.schema().overload_name().empty(); }

  // A whole weight whose gradient on each rank is a part of the sum.
  static at::Tensor summed(const at::Tensor& weight, const Divided& divided) {
    const bool has_gradient = at::GradMode::is_enabled() && weight.requires_grad();
    if (!has_gradient) return weight;
    // A view of a shared weight is in the table. A clone is not, so its sum is made once.
    const bool is_shared = divided.kind == Style::Kind::kShared;
    return copy_to_ranks(is_shared ? weight.clone() : weight, divided.region.group);
  }

  void replace_in_list(std::size_t index) {
    std::vector<at::Tensor> tensors = arguments_[index].toTensorVector();
    bool is_changed = false;
    for (at::Tensor& one : tensors) {
      const DividedPointer divided = find(one);
      if (!divided) continue;
      const bool may_be_in_list = is_whole(divided->kind) && divided->kind != Style::Kind::kPositions;
      if (!may_be_in_list && at::GradMode::is_enabled()) refuse(*divided, name_);
      if (is_whole(divided->kind)) one = summed(one, *divided);
      is_changed = true;
    }
    if (is_changed) arguments_[index] = c10::IValue(c10::List<at::Tensor>(c10::ArrayRef<at::Tensor>(tensors)));
  }

  at::Tensor embed(const Divided& divided) const {
    const bool has_padding = arguments_[2].toInt() != -1;
    if (has_padding || arguments_[3].toBool() || arguments_[4].toBool()) {
      refuse(divided, "aten::embedding with padding_idx, or with scaled or sparse gradients");
    }
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

// All ranks would need the same random numbers outside of divided layers, and their own inside.
template <class Arguments>
void refuse_dropout(const c10::OperatorHandle& operation, const Arguments& arguments) {
  const std::string& name = operation.schema().name();
  const bool is_attention = name == "aten::scaled_dot_product_attention";
  if (!is_attention && name != "aten::dropout" && name != "aten::dropout_") return;
  const c10::IValue& probability = arguments[is_attention ? 4 : 1];
  const bool is_on =
      is_attention || (operation.schema().arguments().size() > 2 && arguments[2].isBool() && arguments[2].toBool());
  if (!is_on || !probability.isDouble() || probability.toDouble() == 0) return;
  throw InvalidArgument(Report{.what = "[tensor_parallel] a model with divided layers cannot use dropout yet",
                               .got = name,
                               .expected = "a probability of 0",
                               .fix = "leave the dropout out"});
}

// scaled_dot_product_attention for a part of each sequence.
at::Tensor attention_over_ranks(const nn::SequencePart& part, const Stack& arguments) {
  at::Tensor query = tensor_at(arguments, 0), key = tensor_at(arguments, 1), value = tensor_at(arguments, 2);
  const bool has_mask = tensor_at(arguments, 3).defined();
  const double dropout = arguments[4].toDouble();
  if (has_mask || dropout != 0 || query.dim() != 4) {
    throw InvalidArgument(Report{.what = "[context_parallel] attention over ranks is not possible in this way",
                                 .got = fmt::format("a query of {} dimensions, {}, dropout {}", query.dim(),
                                                    has_mask ? "a mask" : "no mask", dropout),
                                 .expected = "[batch, heads, tokens, width], is_causal in place of a mask, no dropout",
                                 .fix = "change the model, or leave the axis of context parallelism out"});
  }
  if (key.size(1) != query.size(1) && query.size(1) % key.size(1) == 0) {  // enable_gqa
    key = key.repeat_interleave(query.size(1) / key.size(1), 1);
    value = value.repeat_interleave(query.size(1) / value.size(1), 1);
  }
  // This function comes before autocast, which would do the same.
  if (const c10::DeviceType device = query.device().type(); at::autocast::is_autocast_enabled(device)) {
    for (at::Tensor* tensor : {&query, &key, &value}) *tensor = tensor->to(at::autocast::get_autocast_dtype(device));
  }
  const double scale =
      arguments[6].isNone() ? 1 / std::sqrt(static_cast<double>(query.size(3))) : arguments[6].toDouble();
  return part.attention(query, key, value, arguments[5].toBool(), scale);
}

void intercepted(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, Stack* stack) {
  const std::size_t count = operation.schema().arguments().size();
  const auto first = stack->end() - static_cast<std::ptrdiff_t>(count);
  // The operations of a backward see weights too. They compute gradients of the operations that were intercepted.
  const bool is_backward = !at::GradMode::is_enabled() && torch::autograd::get_current_graph_task_id() != -1;
  if (is_backward) return tensor::pass_on(tensor::Where::kUse, operation, keys, stack);
  if (const auto part = nn::sequence_part();
      part && operation.schema().name() == "aten::scaled_dot_product_attention") {
    const at::Tensor result = attention_over_ranks(*part, Stack(first, stack->end()));
    stack->erase(first, stack->end());
    return stack->push_back(c10::IValue(result));
  }
  refuse_dropout(operation, first);
  if (std::any_of(first, stack->end(), has_divided)) {
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
  tensor::take_over(weight, std::make_shared<const Divided>(std::move(divided)));
}

void use_divided_weights_on_this_thread() { tensor::intercept_on_this_thread(tensor::Where::kUse, &intercepted); }

}  // namespace reigen::parallel
