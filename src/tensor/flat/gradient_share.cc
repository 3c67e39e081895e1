#include "tensor/flat/gradient_share.h"

#include <ATen/ATen.h>

namespace reigen::tensor {

void GradientShare::add_mark(at::IntArrayRef shape) {
  marks_.push_back({.tensor = at::empty(shape, made_.tensor().options().device(at::kMeta))});
}

bool GradientShare::is_marked(std::size_t segment, const at::Tensor& gradient) const {
  // zero_grad(false) of a module replaces `.grad` by another tensor with its storage.
  return gradient.defined() && gradient.is_meta() &&
         gradient.storage().unsafeGetStorageImpl() == marks_[segment].tensor.storage().unsafeGetStorageImpl();
}

void GradientShare::mark(std::size_t segment, const at::Tensor& parameter) {
  Mark& mark = marks_[segment];
  mark.version = mark.tensor._version();
  parameter.mutable_grad() = mark.tensor;
}

bool GradientShare::take_mark(std::size_t segment, const at::Tensor& parameter) const {
  if (!is_marked(segment, parameter.grad())) return false;
  parameter.mutable_grad().reset();
  return marks_[segment].tensor._version() == marks_[segment].version;
}

}  // namespace reigen::tensor
