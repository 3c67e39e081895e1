#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

#include "base/check.h"
#include "reigen/layout/layout.h"
#include "reigen/parallel/tensor_operations.h"
#include "reigen/tensor/data_type.h"
#include "tensor/calls.h"
#include "tensor/differentiable.h"
#include "tensor/hooks/intercept.h"

namespace reigen::parallel {
namespace {

using Tensors = std::vector<at::Tensor>;

void require_linear(const char* function, const at::Tensor& x, const at::Tensor& weight, const Region& region) {
  REIGEN_CHECK(!region.sequence || x.dim() > region.dimension + 1,
               "[{}] the activations have no dimension {} of a sequence\n  got: x [{}]   expected: [batch, sequence, "
               "features]\n  fix: do not flatten the activations before the layer, or leave `sequence` out",
               function, region.dimension, fmt::join(x.sizes(), ", "));
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
        counts.push_back(static_cast<std::size_t>(row * layout::chunk_of(shape[0], 1, q, group.size()).second));
      }
      shape[0] = layout::chunk_of(shape[0], 1, group.rank(), group.size()).second;
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
  // The memory must not be freed while the call uses it, also if backward throws.
  ~GradientOnItsWay() {
    if (is_there_) return;
    try {
      work_.wait();
    } catch (const std::exception&) {  // the group's next call throws the error too
    }
  }
  GradientOnItsWay(const GradientOnItsWay&) = delete;  // the call uses its memory
  GradientOnItsWay& operator=(const GradientOnItsWay&) = delete;

  at::Tensor wait() {
    tensor::wait_for(work_, sum_);
    is_there_ = true;
    return region_.sequence ? sum_.movedim(0, region_.dimension) : sum_;
  }

 private:
  const Region& region_;
  at::Tensor source_;
  at::Tensor sum_;
  Work work_;
  bool is_there_ = false;
};

// The same sum, for a gradient that is differentiated again.
at::Tensor added_up(const at::Tensor& gradient, const Region& region) {
  return region.sequence ? reduce_to_parts(gradient, region.dimension, region.group)
                         : reduce_from_ranks(gradient, region.group);
}

at::Tensor as_matrix(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

}  // namespace

// The backward is written here, and not left to autograd, because the gradient of x must be on its way while the
// gradient of the weight is computed. With a sequence, backward gathers x once more, so that only the part is kept.
at::Tensor column_parallel_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                  const Region& region) {
  require_linear("column_parallel_linear", x, weight, region);
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
  const auto backward = [=](const Tensors& gradients, const Tensors& given) -> Tensors {
    const tensor::Uncaught inner{tensor::Where::kUse};  // here the weight is only a matrix
    const at::Tensor& dy = gradients[0];
    const at::ScalarType type = dy.scalar_type();  // 16 bits under autocast
    const at::Tensor rows = as_matrix(dy);
    const auto of_weight = [&] { return at::mm(rows.t(), as_matrix(whole(given[0]).to(type))); };
    Tensors result(given.size());
    if (has_bias && given[2].requires_grad()) result[2] = rows.sum(0);
    const bool wants_x = given[0].requires_grad();
    if (!wants_x || at::GradMode::is_enabled()) {  // with create_graph everything must be differentiable
      if (given[1].requires_grad()) result[1] = of_weight();
      if (wants_x) result[0] = added_up(at::matmul(dy, given[1].to(type)), region);
      return result;
    }
    GradientOnItsWay dx(at::matmul(dy, given[1].to(type)), region);
    if (given[1].requires_grad()) result[1] = of_weight();
    result[0] = dx.wait();
    return result;
  };
  return tensor::apply_keeping_inputs(inputs, forward, backward)[0];
}

at::Tensor row_parallel_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                               const Region& region) {
  require_linear("row_parallel_linear", x, weight, region);
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
