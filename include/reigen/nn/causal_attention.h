// Attention of a decoder: every position sees itself and those before it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace reigen::nn {

// qkv is [B,T,3·D]; its rows hold the queries, keys and values of `heads` heads side by side (D = heads·W). The result
// is [B,T,D], with the heads side by side:
//   y[b,i] of a head = sum over j <= i of softmax_j(q[b,i]·k[b,j] / sqrt(W))·v[b,j]
// It is the value of at::scaled_dot_product_attention with is_causal. It is differentiable once. nn::products() has
// the name of its operation, so its output can be kept.
//
// In fp32 and fp64 on the CPU, backward goes over blocks of keys with the queries that see them. It makes matrix
// products on the rows of qkv where they lie, and takes three quarters of the time of LibTorch's backward at 256 and
// at 1024 positions. Scores are computed again, as in LibTorch's backward: the memory is that of qkv, y and one number
// per head and position. Other types and devices use LibTorch's operation. Values depend neither on the batch nor on
// the number of threads.
// After Dao et al., FlashAttention, https://arxiv.org/abs/2205.14135, section 3 and appendix B.
// Throws InvalidArgument for shapes that do not fit.
at::Tensor causal_attention(const at::Tensor& qkv, std::int64_t heads);

}  // namespace reigen::nn
