#include "reigen/parallel/tensor_operations.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "reigen/layout/layout.h"
#include "reigen/tensor/collectives.h"
#include "tensor/differentiable.h"

namespace reigen::parallel {
namespace {

using Tensors = std::vector<at::Tensor>;

// The collectives gather and scatter along the first dimension.
at::Tensor as_rows(const at::Tensor& x, std::int64_t dimension) { return x.movedim(dimension, 0).contiguous(); }
at::Tensor from_rows(const at::Tensor& rows, std::int64_t dimension) { return rows.movedim(0, dimension).contiguous(); }

at::Tensor gathered(const at::Tensor& x, std::int64_t dimension, const Communicator& group) {
  return from_rows(tensor::all_gather(as_rows(x, dimension), group), dimension);
}

at::Tensor own_part(const at::Tensor& x, std::int64_t dimension, const Communicator& group) {
  const auto [begin, size] = layout::chunk_of(x.size(dimension), 1, group.rank(), group.size());
  return x.narrow(dimension, begin, size).contiguous();
}

at::Tensor apply(const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& forward,
                 const std::function<at::Tensor(const at::Tensor&)>& backward) {
  return tensor::apply_differentiable(
      {x}, [=](const Tensors& inputs) -> Tensors { return {forward(inputs[0])}; },
      [=](const Tensors& gradients) -> Tensors { return {backward(gradients[0])}; })[0];
}

void require_dimension(const at::Tensor& x, std::int64_t dimension, const char* function) {
  REIGEN_CHECK(dimension >= 0 && dimension < x.dim(), "[{}] a tensor of shape [{}] has no dimension {}", function,
               fmt::join(x.sizes(), ", "), dimension);
}

}  // namespace

at::Tensor copy_to_ranks(const at::Tensor& x, const Communicator& group) {
  if (group.size() == 1) return x;
  return apply(
      x, [](const at::Tensor& input) { return input.view_as(input); },
      [=](const at::Tensor& gradient) { return tensor::all_reduce(gradient, group); });
}

at::Tensor reduce_from_ranks(const at::Tensor& x, const Communicator& group) {
  if (group.size() == 1) return x;
  return apply(
      x, [=](const at::Tensor& input) { return tensor::all_reduce(input, group); },
      [](const at::Tensor& gradient) { return gradient; });
}

at::Tensor gather_parts(const at::Tensor& x, std::int64_t dimension, const Communicator& group) {
  require_dimension(x, dimension, "gather_parts");
  if (group.size() == 1) return x;
  return gathered(x, dimension, group);
}

at::Tensor reduce_to_parts(const at::Tensor& x, std::int64_t dimension, const Communicator& group) {
  require_dimension(x, dimension, "reduce_to_parts");
  if (group.size() == 1) return x;
  return from_rows(tensor::reduce_scatter(as_rows(x, dimension), group), dimension);
}

at::Tensor take_part(const at::Tensor& x, std::int64_t dimension, const Communicator& group) {
  require_dimension(x, dimension, "take_part");
  if (group.size() == 1) return x;
  return apply(
      x, [=](const at::Tensor& input) { return own_part(input, dimension, group); },
      [=](const at::Tensor& gradient) { return gathered(gradient, dimension, group); });
}

at::Tensor gather_results(const at::Tensor& x, std::int64_t dimension, const Communicator& group) {
  require_dimension(x, dimension, "gather_results");
  if (group.size() == 1) return x;
  const std::int64_t own = x.size(dimension);
  const at::Tensor sizes = tensor::all_gather(at::full({1}, own, at::kLong), group);
  const auto begin = sizes.narrow(0, 0, group.rank()).sum().item<std::int64_t>();
  return apply(
      x, [=](const at::Tensor& input) { return gathered(input, dimension, group); },
      [=](const at::Tensor& gradient) { return gradient.narrow(dimension, begin, own).contiguous(); });
}

}  // namespace reigen::parallel
