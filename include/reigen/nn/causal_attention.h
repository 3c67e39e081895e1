// Attention of a decoder: every position attends to itself and to all earlier positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace reigen::nn {

// `qkv` has the shape [B,T,3·D], for B samples with T positions each. The last dimension contains the queries of all
// heads, then their keys, then their values, each of width W: D = heads·W. The result has the shape [B,T,D], with the
// heads side by side in the last dimension:
//   y[b,i] of a head = sum over j <= i of softmax_j(q[b,i]·k[b,j] / sqrt(W))·v[b,j]
// at::scaled_dot_product_attention with is_causal gives the same result. causal_attention() can be differentiated once.
// nn::products() contains the name of LibTorch's operation that computes the result, so activation checkpointing can
// keep the result.
//
// In fp32 and fp64 on the CPU, causal_attention() has its own backward. This backward processes one block of keys at a
// time, with the queries that attend to these keys. Its matrix products read `qkv` without a copy. It takes three
// quarters of the time of LibTorch's backward at 256 and at 1024 positions. It computes the scores q·k again, as
// LibTorch's backward does. So forward saves only qkv, y and one number per head and position. For other types and
// devices, LibTorch's operation computes forward and backward. The result for a sample depends neither on the other
// samples of the batch nor on the number of threads.
// After Dao et al., FlashAttention, https://arxiv.org/abs/2205.14135, section 3 and appendix B.
// Throws InvalidArgument for shapes that do not fit.
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads);

}  // namespace reigen::nn
