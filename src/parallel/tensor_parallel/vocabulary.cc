#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <cmath>
#include <memory>
#include <vector>

#include "base/check.h"
#include "reigen/base/error.h"
#include "reigen/parallel/tensor_operations.h"
#include "reigen/tensor/collectives.h"
#include "tensor/differentiable.h"

namespace reigen::parallel {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor is_outside(const at::Tensor& ids, std::int64_t first, std::int64_t count) {
  return ids.lt(first).logical_or(ids.ge(first + count));
}

// The host would have to wait for a GPU to see its numbers.
void require_tokens(const char* function, const at::Tensor& outside, const at::Tensor& ids, std::int64_t size) {
  if (!ids.device().is_cpu() || !outside.any().item<bool>()) return;
  throw InvalidArgument(Report{.what = fmt::format("[{}] a token is not in the vocabulary", function),
                               .got = fmt::format("{}", ids.masked_select(outside)[0].item<std::int64_t>()),
                               .expected = fmt::format("0 to {}", size - 1),
                               .fix = "give the model as many tokens (model.vocab) as the data have"});
}

}  // namespace

at::Tensor vocab_parallel_embedding(const at::Tensor& ids, const at::Tensor& table, const VocabPart& part,
                                    const Region& region) {
  REIGEN_CHECK(table.dim() == 2, "[vocab_parallel_embedding] a table of shape [{}]: [rows, dim] was expected",
               fmt::join(table.sizes(), ", "));
  const at::Tensor outside = is_outside(ids, 0, part.size);
  require_tokens("vocab_parallel_embedding", outside, ids, part.size);
  const std::int64_t rows = table.size(0);
  at::Tensor own;
  if (rows == 0) {  // more ranks than rows: this rank adds zeros, and its table gets an empty gradient
    std::vector<std::int64_t> shape = ids.sizes().vec();
    shape.push_back(table.size(1));
    own = at::zeros(shape, table.options()) + table.sum();
  } else {
    const at::Tensor elsewhere = is_outside(ids, part.first, rows);
    own = at::embedding(table, (ids - part.first).masked_fill(elsewhere, 0)).masked_fill(elsewhere.unsqueeze(-1), 0);
  }
  if (!ids.device().is_cpu()) own = own.masked_fill(outside.unsqueeze(-1), NAN);
  if (region.sequence) return reduce_to_parts(own, region.dimension, region.group);
  return reduce_from_ranks(own, region.group);
}

// With m the largest logit and s = sum of exp(logit - m), the loss of one target is log(s) + m - logit[target], and the
// gradient of the logits is exp(logit - m) / s, less 1 at the target. Only m, s and the target's logit are exchanged.
at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const VocabPart& part,
                                        const Communicator& group, const CrossEntropyOptions& options) {
  REIGEN_CHECK(logits.dim() == targets.dim() + 1 &&
                   logits.sizes().slice(0, static_cast<std::size_t>(targets.dim())) == targets.sizes(),
               "[vocab_parallel_cross_entropy] logits [{}] and targets [{}]: logits must have one dimension more",
               fmt::join(logits.sizes(), ", "), fmt::join(targets.sizes(), ", "));
  const at::ScalarType type = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor ids = targets.reshape({-1});
  const at::Tensor counted = ids.ne(options.ignore_index);
  const at::Tensor outside = counted.logical_and(is_outside(ids, 0, part.size));
  require_tokens("vocab_parallel_cross_entropy", outside, ids, part.size);
  const std::int64_t own = logits.size(-1);
  const auto kept =
      std::make_shared<Tensors>();  // the probabilities of this rank's logits, and 1 / the number of targets
  const at::Tensor elsewhere = is_outside(ids, part.first, own);
  const at::Tensor local = (ids - part.first).masked_fill(elsewhere, 0).unsqueeze(1);
  const bool wants_gradient = tensor::wants_gradient({logits});
  const auto forward = [=](const Tensors& inputs) -> Tensors {
    const at::Tensor scores = inputs[0].reshape({-1, own}).to(type);
    at::Tensor largest = own > 0 ? scores.amax(1) : at::full({ids.size(0)}, -INFINITY, scores.options());
    largest = tensor::all_reduce(largest, group, {.op = ReduceOp::kMax});
    const at::Tensor powers = (scores - largest.unsqueeze(1)).exp_();
    const at::Tensor at_target =
        own > 0 ? scores.gather(1, local).squeeze(1).masked_fill(elsewhere, 0) : at::zeros_like(largest);
    const at::Tensor sums = tensor::all_reduce(at::stack({powers.sum(1), at_target}), group);
    const at::Tensor losses =
        (sums[0].log() + largest - sums[1]).masked_fill(counted.logical_not(), 0).masked_fill(outside, INFINITY);
    const at::Tensor scale = options.sum ? at::ones({}, scores.options()) : counted.sum().to(type).reciprocal();
    if (wants_gradient) *kept = {powers.div_(sums[0].unsqueeze(1)), scale};
    return {losses.sum() * scale};
  };
  const auto backward = [=, shape = logits.sizes().vec(),
                         type_of_logits = logits.scalar_type()](const Tensors& gradients) -> Tensors {
    if (at::GradMode::is_enabled()) {
      throw InvalidArgument(Report{.what = "[vocab_parallel_cross_entropy] it has no second derivative",
                                   .fix = "leave create_graph out, or gather the scores and use LibTorch's"});
    }
    const at::Tensor weights = (counted.to(type) * ((*kept)[1] * gradients[0])).unsqueeze(1);
    at::Tensor gradient = (*kept)[0] * weights;
    if (own > 0) gradient.scatter_add_(1, local, elsewhere.logical_not().to(type).neg_().unsqueeze(1) * weights);
    return {gradient.view(shape).to(type_of_logits)};
  };
  return tensor::apply_differentiable({logits}, forward, backward)[0];
}

}  // namespace reigen::parallel
