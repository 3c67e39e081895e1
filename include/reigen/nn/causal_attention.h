// Attention of a decoder: every position sees itself and those before it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace reigen::nn {

// Of qkv [B,T,3·D], whose rows hold queries, keys and values of `heads` heads beside each other (D = heads·W):
//   y[b,i] of a head = sum over j <= i of softmax_j(q[b,i]·k[b,j] / sqrt(W))·v[b,j],   the heads beside each other
//   [B,T,D]
// as at::scaled_dot_product_attention with is_causal, differentiable once, and kept by the same name in
// nn::products().
//
// In fp32 and fp64 on the CPU backward goes over blocks of keys with the queries that see them, by matrix products on
// the rows of qkv as they lie: three quarters of LibTorch's time at 256 and at 1024 positions. Scores are computed
// again, as in its own: memory is that of qkv, y and one number a head and position. Other types and devices take
// LibTorch's own. Values do not depend on the batch or on the number of threads.
// After Dao et al., FlashAttention, https://arxiv.org/abs/2205.14135, section 3 and appendix B.
// Throws InvalidArgument for shapes that do not fit.
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads);

}  // namespace reigen::nn
