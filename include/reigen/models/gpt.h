// A decoder of the GPT-2 family on tokens. With the default options it has 10.8 M parameters.
//
//   [B,T] token + position embedding -> layers x (x + attention(norm(x)), x + mlp(norm(x))) -> norm -> linear
//   -> [B,T,vocab] scores of the next token, not normalised
//
// B is the number of samples, and T the number of tokens of each sample. The attention is causal and has `heads` heads.
// The MLP has 4·dim hidden features and GELU.
// Parameters: embed.{tok, pos}, blocks.N.{n1, qkv, out, n2, up, down}, head.{norm, linear}.
// Radford et al., Language models are unsupervised multitask learners, 2019. Thread rule: as for torch::nn::Module.
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

struct GptOptions {
  std::int64_t vocab = 65;
  std::int64_t layers = 6;
  std::int64_t dim = 384;
  std::int64_t heads = 6;      // must divide dim
  std::int64_t context = 256;  // largest number of positions
  bool tied = false;           // the last linear layer has the weight of the token embedding
  bool tanh_gelu = false;      // GELU by tanh, as the published GPT-2 has it; else by erf
  // Which operations compute embeddings, normalisation, additions and GELU. Results differ by rounding. With Reigen's
  // operations, a layer hands the next one two tensors, whose sum is the residual stream.
  nn::Kernels kernels = nn::Kernels::kAuto;
};

// As training_flops() of llama.h.
double training_flops(const GptOptions& options, std::int64_t positions);

class Gpt : public torch::nn::Module {
 public:
  explicit Gpt(const GptOptions& options = {});  // throws InvalidArgument for sizes out of range

  // Sets the initial values. Weights are normal with standard deviation 0.02. The weights of the layers `out` and
  // `down`, whose outputs are added to the residual stream, have 0.02 / sqrt(2·layers). The normalisation layers'
  // weights are 1. All biases are 0.
  void initialize(std::uint64_t seed);

  // `tokens` has the shape [B, T], with T at most `context`. Its elements are int64 from 0 to vocab - 1. The result has
  // the shape [B, T, vocab]. Its row t depends on tokens 0 to t only. Throws InvalidArgument for other shapes.
  at::Tensor forward(const at::Tensor& tokens);

  // The scores of the positions after those in the cache, which gets the new positions. `tokens` are those of the new
  // positions alone. The result is that of forward() with all tokens, up to rounding. For text that is generated: call
  // it without gradients. Throws InvalidArgument likewise, and if the cache belongs to another batch.
  at::Tensor forward(const at::Tensor& tokens, KeyValueCache& cache);

  const std::vector<nn::Unit>& units() const { return units_; }  // embed, blocks.0, ..., head
  const GptOptions& options() const { return options_; }

 private:
  GptOptions options_;
  std::shared_ptr<CacheInUse> in_use_;  // shared with the layers
  std::vector<nn::Unit> units_;
};

}  // namespace reigen::models
