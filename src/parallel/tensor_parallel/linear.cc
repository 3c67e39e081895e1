#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "parallel/tensor_parallel/parts.h"
#include "reigen/parallel/tensor_operations.h"
#include "reigen/tensor/collectives.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/differentiable.h"
#include "tensor/hooks/intercept.h"

namespace reigen::parallel {
namespace {

using Tensors = std::vector<at::Tensor>;

void require_linear(const char* function, const at::Tensor& x, const at::Tensor& weight) {
  REIGEN_CHECK(weight.dim() == 2 && x.dim() >= 1 && x.size(-1) == weight.size(1),
               "[{}] the shapes do not fit\n  got: x [{}], weight [{}]   expected: weight [out, in] and x [..., in]",
               function, fmt::join(x.sizes(), ", "), fmt::join(weight.sizes(), ", "));
}

// The sum over the ranks of a gradient of x, which travels while the host computes something else.
class GradientOnItsWay {
 public:
  GradientOnItsWay(const at::Tensor& gradient, const Region& region) : region_(region) {
    const Communicator& group = region.group;
    source_ = region.sequence ? gradient.movedim(region.dimension, 0).contiguous() : gradient.contiguous();
    const DataType type = tensor::to_data_type(source_.scalar_type());
    if (region.sequence) {
      std::vector<std::int64_t> shape = source_.sizes().vec();
      const std::int64_t row = source_.numel() / std::max<std::int64_t>(shape[0], 1);
      std::vector<std::size_t> counts;
      for (int q = 0; q < group.size(); ++q) {
        counts.push_back(static_cast<std::size_t>(row * part_of_rank(shape[0], q, group.size()).second));
      }
      shape[0] = part_of_rank(shape[0], group.rank(), group.size()).second;
      sum_ = at::empty(shape, source_.options());
      work_ = group.start_reduce_scatter_v(source_.const_data_ptr(), sum_.mutable_data_ptr(), counts, type,
                                           ReduceOp::kSum, {.after = tensor::stream_of(source_)});
    } else {
      sum_ = at::empty_like(source_);
      work_ = group.start_all_reduce(source_.const_data_ptr(), sum_.mutable_data_ptr(),
                                     static_cast<std::size_t>(source_.numel()), type, ReduceOp::kSum,
                                     {.after = tensor::stream_of(source_)});
    }
  }
  at::Tensor wait() const {
    tensor::wait_for(work_, sum_);
    return region_.sequence ? sum_.movedim(0, region_.dimension) : sum_;
  }

 private:
  const Region& region_;
  at::Tensor source_;
  at::Tensor sum_;
  Work work_;
};

at::Tensor as_matrix(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

}  // namespace

// The backward is written here, and not left to autograd, because the gradient of x must be on its way while the
// gradient of the weight is computed. With a sequence, backward gathers x once more, so that only the part is kept.
at::Tensor column_parallel_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                  const Region& region) {
  require_linear("column_parallel_linear", x, weight);
  if (region.group.size() == 1) return at::linear(x, weight, bias);
  const bool has_bias = bias.defined();
  const auto whole = [region](const at::Tensor& part) {
    return region.sequence ? gather_parts(part, region.dimension, region.group) : part;
  };
  Tensors inputs{x, weight};
  if (has_bias) inputs.push_back(bias);
  const auto forward = [=](const Tensors& given) -> Tensors {
    return {at::linear(whole(given[0]), given[1], has_bias ? given[2] : at::Tensor())};
  };
  const auto backward = [=, input = x.detach(), matrix = weight.detach()](const Tensors& gradients) -> Tensors {
    const tensor::Uncaught inner{tensor::Where::kUse};  // here the weight is only a matrix
    const at::Tensor& dy = gradients[0];
    const at::ScalarType type = dy.scalar_type();  // 16 bits under autocast
    const GradientOnItsWay dx(at::matmul(dy, matrix.to(type)), region);
    const at::Tensor rows = as_matrix(dy);
    Tensors result{at::Tensor(), at::mm(rows.t(), as_matrix(whole(input).to(type)))};
    if (has_bias) result.push_back(rows.sum(0));
    result[0] = dx.wait();
    return result;
  };
  return tensor::apply_differentiable(inputs, forward, backward)[0];
}

at::Tensor row_parallel_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                               const Region& region) {
  require_linear("row_parallel_linear", x, weight);
  if (region.group.size() == 1) return at::linear(x, weight, bias);
  const at::Tensor own = at::linear(x, weight);
  if (!region.sequence) {
    const at::Tensor sum = reduce_from_ranks(own, region.group);
    return bias.defined() ? sum + bias : sum;
  }
  const at::Tensor part = reduce_to_parts(own, region.dimension, region.group);
  // Each rank adds the bias to its part only, so the gradient of the bias is a sum over the ranks.
  return bias.defined() ? part + copy_to_ranks(bias, region.group) : part;
}

}  // namespace reigen::parallel
