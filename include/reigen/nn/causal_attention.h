// Attention of a decoder: every position sees itself and all earlier positions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace reigen::nn {

// qkv is [B,T,3·D], for B samples with T positions each; its rows hold the queries, keys and values of `heads` heads
// side by side (D = heads·W). The result is [B,T,D], with the heads side by side:
//   y[b,i] of a head = sum over j <= i of softmax_j(q[b,i]·k[b,j] / sqrt(W))·v[b,j]
// The result is that of at::scaled_dot_product_attention with is_causal. It can be differentiated once. nn::products()
// contains the name of this operation, so activation checkpointing can keep its output.
//
// In fp32 and fp64 on the CPU, backward processes one block of keys at a time, with the queries that see it. Its matrix
// products read the rows of qkv without a copy, and it takes three quarters of the time of LibTorch's backward at 256
// and at 1024 positions. It computes the scores again, as LibTorch's backward does, so memory is needed only for qkv, y
// and one number per head and position. Other types and devices use LibTorch's operation. Values depend neither on the
// batch nor on the number of threads.
// After Dao et al., FlashAttention, https://arxiv.org/abs/2205.14135, section 3 and appendix B.
// Throws InvalidArgument for shapes that do not fit.
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads);

}  // namespace reigen::nn
