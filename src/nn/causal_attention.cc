#include "reigen/nn/causal_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/check.h"
#include "reigen/nn/sequence_part.h"

namespace reigen::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kKeys = 64;                     // number of keys in a block
constexpr std::int64_t kScratchElements = 128 * 1024;  // as many scores as fit into the second-level cache

struct Sizes {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t width;
  std::int64_t dim() const { return heads * width; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(width)); }
};

Sizes sizes_of(const at::Tensor& qkv, std::int64_t heads) {
  return {.batch = qkv.size(0), .length = qkv.size(1), .heads = heads, .width = qkv.size(2) / 3 / heads};
}

// Returns query, key and value as views of `qkv`, each of shape [B, heads, T, width].
std::vector<at::Tensor> parted(const at::Tensor& qkv, const Sizes& s) {
  return qkv.view({s.batch, s.length, 3, s.heads, s.width}).permute({2, 0, 3, 1, 4}).unbind(0);
}

at::Tensor joined(const at::Tensor& y, const Sizes& s) {
  return y.transpose(1, 2).reshape({s.batch, s.length, s.dim()});
}

// The tensors of some heads of one sample. `sums` and `along` have the shape [count, T], all others have the shape
// [count, T, width]. Before select(), the tensors hold all heads of all samples, and their first dimension is the
// batch.
struct Heads {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  at::Tensor of_query;  // of_query to of_result: the gradients of query, key, value and result
  at::Tensor of_key;
  at::Tensor of_value;
  at::Tensor of_result;
  at::Tensor sums;   // logsumexp of each row of scores
  at::Tensor along;  // the result times its gradient, summed over the width

  Heads select(std::int64_t sample, std::int64_t first, std::int64_t count) const {
    Heads part = *this;
    for (at::Tensor* tensor : {&part.query, &part.key, &part.value, &part.of_query, &part.of_key, &part.of_value,
                               &part.of_result, &part.sums, &part.along}) {
      *tensor = tensor->select(0, sample).narrow(0, first, count);
    }
    return part;
  }
};

// Processes one block of keys at a time, together with the queries that attend to it: the queries at the positions of
// the block and at all later positions. The gradients of the block's keys and values are then complete. The gradients
// of the queries are summed over all blocks.
void backward_of(const Heads& h, double scale, const at::Tensor& scratch) {
  const std::int64_t count = h.query.size(0);
  const std::int64_t length = h.query.size(1);
  for (std::int64_t first = 0; first < length; first += kKeys) {
    const std::int64_t keys = std::min(kKeys, length - first);
    const std::int64_t rows = length - first;
    const auto seeing = [&](const at::Tensor& all) { return all.narrow(1, first, rows); };
    const auto seen = [&](const at::Tensor& all) { return all.narrow(1, first, keys); };
    const auto block = [&](std::int64_t which) {
      return scratch[which].narrow(0, 0, count * rows * keys).view({count, rows, keys});
    };
    at::Tensor p = block(0);  // scores, then probabilities
    at::Tensor d = block(1);  // gradients of probabilities, then of scores
    at::baddbmm_out(p, p, seeing(h.query), seen(h.key).transpose(1, 2), 0, scale);
    p.sub_(seeing(h.sums).unsqueeze(2)).exp_();
    p.narrow(1, 0, keys).tril_();
    at::bmm_out(d, seeing(h.of_result), seen(h.value).transpose(1, 2));
    d.sub_(seeing(h.along).unsqueeze(2)).mul_(p);
    seen(h.of_value).copy_(at::bmm(p.transpose(1, 2), seeing(h.of_result)));
    seen(h.of_key).copy_(at::bmm(d.transpose(1, 2), seeing(h.query)).mul_(scale));
    seeing(h.of_query).baddbmm_(d, seen(h.key), first == 0 ? 0 : 1, scale);
  }
}

at::Tensor backward_of(const Sizes& s, const at::Tensor& qkv, const at::Tensor& y, const at::Tensor& sums,
                       const at::Tensor& gradient) {
  const at::Tensor result = at::empty_like(qkv);
  const std::vector<at::Tensor> parts = parted(qkv, s);
  const std::vector<at::Tensor> of_parts = parted(result, s);
  const std::vector<std::int64_t> in_heads{s.batch, s.length, s.heads, s.width};
  const at::Tensor along = (gradient * y).view(in_heads).sum(3).transpose(1, 2);
  const Heads all{.query = parts[0],
                  .key = parts[1],
                  .value = parts[2],
                  .of_query = of_parts[0],
                  .of_key = of_parts[1],
                  .of_value = of_parts[2],
                  .of_result = gradient.contiguous().view(in_heads).transpose(1, 2),
                  .sums = sums,
                  .along = along};
  const std::int64_t scores = std::min(kKeys, s.length) * s.length;
  const std::int64_t together = std::clamp<std::int64_t>(kScratchElements / scores, 1, s.heads);
  const std::int64_t groups = (s.heads + together - 1) / together;
  at::parallel_for(0, s.batch * groups, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::NoGradGuard no_grad;
    const at::Tensor scratch = at::empty({2, together * scores}, qkv.options());
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % groups * together;
      backward_of(all.select(i / groups, first, std::min(together, s.heads - first)), s.scale(), scratch);
    }
  });
  return result;
}

struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& qkv, std::int64_t heads) {
    const Sizes s = sizes_of(qkv, heads);
    const std::vector<at::Tensor> parts = parted(qkv, s);
    const auto [output, sums] =
        at::_scaled_dot_product_flash_attention_for_cpu(parts[0], parts[1], parts[2], 0.0, true);
    const at::Tensor y = joined(output, s).detach();  // not a view, so that it may be changed in place
    context->save_for_backward({qkv, y, sums});
    context->saved_data["heads"] = heads;
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const Sizes s = sizes_of(saved[0], context->saved_data["heads"].toInt());
    const bool goes_on = at::GradMode::is_enabled();
    at::Tensor result;
    {
      const at::NoGradGuard no_grad;
      result = backward_of(s, saved[0], saved[1], saved[2], gradients[0]);
    }
    if (goes_on) {
      const auto refuse = std::make_shared<torch::autograd::DelayedError>(
          "[causal_attention] no second derivatives\n  fix: at::scaled_dot_product_attention under "
          "at::SDPBackend::math, "
          "or no create_graph",
          1);
      result = (*refuse)({std::move(result)})[0];
    }
    return {result, {}};
  }
};

}  // namespace

at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads) {
  REIGEN_CHECK(qkv.dim() == 3 && heads >= 1 && qkv.size(2) % (3 * heads) == 0,
               "attention of [{}] with {} heads: expected [B,T,3·D], D a multiple of the heads",
               fmt::join(qkv.sizes(), ","), heads);
  if (const auto part = sequence_part(); part && qkv.numel() > 0) {
    const Sizes s = sizes_of(qkv, heads);
    const std::vector<at::Tensor> parts = parted(qkv.contiguous(), s);
    return joined(part->attention(parts[0], parts[1], parts[2], /*is_causal=*/true, s.scale()), s);
  }
  const bool is_here = qkv.device().is_cpu() && (qkv.scalar_type() == at::kFloat || qkv.scalar_type() == at::kDouble);
  if (is_here && qkv.numel() > 0) return CausalAttention::apply(qkv.contiguous(), heads);
  const Sizes s = sizes_of(qkv, heads);
  const std::vector<at::Tensor> parts = parted(qkv.contiguous(), s);
  return joined(at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true), s);
}

}  // namespace reigen::nn
