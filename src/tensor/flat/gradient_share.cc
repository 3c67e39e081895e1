#include "tensor/flat/gradient_share.h"

#include <ATen/ATen.h>

#include <cmath>

namespace reigen::tensor {

void GradientShare::add_mark(at::IntArrayRef shape) {
  marks_.push_back(at::full({}, NAN, made_.tensor().options()).expand(shape).detach());
}

bool GradientShare::is_marked(std::size_t segment, const at::Tensor& gradient) const {
  return gradient.defined() && gradient.unsafeGetTensorImpl() == marks_[segment].unsafeGetTensorImpl();
}

void GradientShare::mark(std::size_t segment, const at::Tensor& parameter) const {
  parameter.mutable_grad() = marks_[segment];
}

bool GradientShare::take_mark(std::size_t segment, const at::Tensor& parameter) const {
  if (!is_marked(segment, parameter.grad())) return false;
  parameter.mutable_grad().reset();
  // LibTorch refuses to zero an expanded tensor in place, unless the tensor has a single element. So only a mark with a
  // single element can have been zeroed.
  at::Tensor mark = marks_[segment];
  const bool was_zeroed = mark.numel() == 1 && !std::isnan(mark.item<double>());
  if (was_zeroed) mark.fill_(NAN);
  return !was_zeroed;
}

}  // namespace reigen::tensor
