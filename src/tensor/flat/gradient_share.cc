#include "tensor/flat/gradient_share.h"

#include <ATen/ATen.h>

namespace reigen::tensor {

void GradientShare::add_mark(at::IntArrayRef shape) {
  // An expanded tensor, because LibTorch refuses most operations in place on it.
  const at::Tensor one = at::empty({}, made_.tensor().options().device(at::kMeta));
  marks_.push_back({.tensor = one.expand(shape).detach()});
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

bool GradientShare::was_zeroed(std::size_t segment) const {
  return marks_[segment].tensor._version() != marks_[segment].version;
}

bool GradientShare::take_mark(std::size_t segment, const at::Tensor& parameter) const {
  if (!is_marked(segment, parameter.grad())) return false;
  parameter.mutable_grad().reset();
  return !was_zeroed(segment);
}

}  // namespace reigen::tensor
