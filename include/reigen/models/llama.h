// A decoder of the Llama family on tokens.
//
//   [B,T] token embedding -> layers x (x + attention(norm(x)), x + mlp(norm(x))) -> norm -> linear
//   -> [B,T,vocab] scores of the next token, not normalised
//
// B is the number of samples, and T the number of tokens of each sample. Norms are RMSNorm. Attention is causal, turns
// queries and keys by their positions (rotary), and has `heads` heads of queries, which share `kv_heads` heads of keys
// and values. The MLP is down(silu(gate(x))·up(x)) with `hidden` features. No layer has a bias.
// Parameters have the names of Hugging Face: model.embed_tokens.weight, model.layers.N.{input_layernorm,
// self_attn.{q_proj, k_proj, v_proj, o_proj}, post_attention_layernorm, mlp.{gate_proj, up_proj, down_proj}}.weight,
// model.norm.weight, lm_head.weight.
//
// Source: Touvron et al., Llama 2, https://arxiv.org/abs/2307.09288
//
// Thread rule: as for torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "reigen/models/key_value_cache.h"
#include "reigen/nn/kernels.h"
#include "reigen/nn/unit.h"

namespace reigen::models {

struct CacheInUse;

struct LlamaOptions {
  std::int64_t vocab = 32000;
  std::int64_t layers = 2;
  std::int64_t dim = 256;
  std::int64_t heads = 16;      // must divide dim into heads of an even width
  std::int64_t kv_heads = 16;   // must divide heads
  std::int64_t hidden = 768;    // features of the MLP
  std::int64_t context = 2048;  // largest number of positions
  double theta = 10000;         // base of the rotary angles
  double norm_eps = 1e-5;
  bool tied = false;  // the last linear layer has the weight of the token embedding
  // Which operations compute norms, rotary angles, the MLP's activation and the embedding. Results differ by rounding.
  nn::Kernels kernels = nn::Kernels::kAuto;
};

// The floating-point operations of forward and backward for one sequence of `positions` tokens, without those that
// activation checkpointing does again: for each token 6 for each weight of a linear layer, and 12·layers·dim·positions
// in attention (Chowdhery et al., PaLM, https://arxiv.org/abs/2204.02311, appendix B). Masked scores count too.
double training_flops(const LlamaOptions& options, std::int64_t positions);

class Llama : public torch::nn::Module {
 public:
  explicit Llama(const LlamaOptions& options = {});  // throws InvalidArgument for sizes out of range

  // Sets the initial values. Weights are normal with standard deviation 0.02. The weights of the layers o_proj and
  // down_proj, whose outputs are added to the residual stream, have 0.02 / sqrt(2·layers). The weights of norms are 1.
  void initialize(std::uint64_t seed);

  // `tokens` has the shape [B, T], with T at most `context`. Its elements are int64 from 0 to vocab - 1. The result has
  // the shape [B, T, vocab]. Its row t depends on tokens 0 to t only. Throws InvalidArgument for other shapes.
  at::Tensor forward(const at::Tensor& tokens);

  // The scores of the positions after those in the cache, which gets the new positions. `tokens` are those of the new
  // positions alone. The result is that of forward() with all tokens, up to rounding. For text that is generated: call
  // it without gradients. Throws InvalidArgument likewise, and if the cache belongs to another batch.
  at::Tensor forward(const at::Tensor& tokens, KeyValueCache& cache);

  // model.embed_tokens, model.layers.0, ..., model.norm, lm_head
  const std::vector<nn::Unit>& units() const { return units_; }
  const LlamaOptions& options() const { return options_; }

 private:
  LlamaOptions options_;
  std::shared_ptr<CacheInUse> in_use_;  // shared with the layers
  std::vector<nn::Unit> units_;
};

}  // namespace reigen::models
