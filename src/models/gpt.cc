#include "reigen/models/gpt.h"

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <string>
#include <string_view>

#include "base/check.h"
#include "models/cached_attention.h"
#include "reigen/nn/activations.h"
#include "reigen/nn/causal_attention.h"
#include "reigen/nn/embedding.h"
#include "reigen/nn/init.h"
#include "reigen/nn/norm.h"
#include "reigen/nn/sequence_part.h"

namespace reigen::models {

namespace {

using Linear = std::shared_ptr<torch::nn::LinearImpl>;
using LayerNorm = std::shared_ptr<torch::nn::LayerNormImpl>;
using Embedding = std::shared_ptr<torch::nn::EmbeddingImpl>;

LayerNorm make_norm(std::int64_t dim) {
  return std::make_shared<torch::nn::LayerNormImpl>(torch::nn::LayerNormOptions({dim}));
}

// The residual stream, normalised: the sum of one or two tensors.
nn::AddedNorm normalised(const nn::Carry& stream, const LayerNorm& norm) {
  const double eps = norm->options.eps();
  if (stream.size() == 1) return {stream[0], nn::layer_norm(stream[0], norm->weight, norm->bias, eps)};
  return nn::add_layer_norm(stream[0], stream[1], norm->weight, norm->bias, eps);
}

class Embed final : public torch::nn::Module {
 public:
  Embed(const GptOptions& o, std::shared_ptr<const CacheInUse> in_use)
      : kernels_(o.kernels),
        in_use_(std::move(in_use)),
        tok_(register_module("tok", std::make_shared<torch::nn::EmbeddingImpl>(o.vocab, o.dim))),
        pos_(register_module("pos", std::make_shared<torch::nn::EmbeddingImpl>(o.context, o.dim))) {}

  at::Tensor forward(const at::Tensor& tokens) {
    const bool fused = nn::are_fused(kernels_, tokens.device());
    const at::Tensor of_tokens = fused ? nn::embedding(tokens, tok_->weight) : tok_->forward(tokens);
    return of_tokens + nn::rows_of_positions(pos_->weight, tokens.size(1), in_use_->first());
  }
  const at::Tensor& weight() const { return tok_->weight; }

 private:
  nn::Kernels kernels_;
  std::shared_ptr<const CacheInUse> in_use_;
  Embedding tok_;
  Embedding pos_;
};

class Block final : public torch::nn::Module {
 public:
  Block(const GptOptions& o, std::shared_ptr<const CacheInUse> in_use, std::size_t layer)
      : kernels_(o.kernels),
        width_(o.dim / o.heads),
        gelu_(o.tanh_gelu ? "tanh" : "none"),
        in_use_(std::move(in_use)),
        layer_(layer),
        n1_(register_module("n1", make_norm(o.dim))),
        n2_(register_module("n2", make_norm(o.dim))),
        qkv_(register_module("qkv", std::make_shared<torch::nn::LinearImpl>(o.dim, 3 * o.dim))),
        out_(register_module("out", std::make_shared<torch::nn::LinearImpl>(o.dim, o.dim))),
        up_(register_module("up", std::make_shared<torch::nn::LinearImpl>(o.dim, 4 * o.dim))),
        down_(register_module("down", std::make_shared<torch::nn::LinearImpl>(4 * o.dim, o.dim))) {}

  nn::Carry forward(const nn::Carry& stream) {
    if (nn::are_fused(kernels_, stream[0].device())) return fused(stream);
    const at::Tensor& x = stream[0];
    const at::Tensor y = x + attend(n1_->forward(x));
    return {y + down_->forward(at::gelu(up_->forward(n2_->forward(y)), gelu_))};
  }

 private:
  nn::Carry fused(const nn::Carry& stream) {
    const nn::AddedNorm first = normalised(stream, n1_);
    const nn::AddedNorm second = normalised({first.sum, attend(first.output)}, n2_);
    const at::Tensor hidden = gelu_ == "none" ? nn::gelu(at::linear(second.output, up_->weight), up_->bias)
                                              : at::gelu(up_->forward(second.output), gelu_);
    return {second.sum, down_->forward(hidden)};
  }
  // The number of heads is that of the tensor, because a rank may have only some heads.
  at::Tensor attend(const at::Tensor& x) {
    const at::Tensor qkv = qkv_->forward(x);
    const std::int64_t heads = qkv.size(-1) / (3 * width_);
    if (in_use_->cache == nullptr) return out_->forward(nn::causal_attention(qkv, heads));
    const std::vector<at::Tensor> parts =
        qkv.view({qkv.size(0), qkv.size(1), 3, heads, width_}).permute({2, 0, 3, 1, 4}).unbind(0);
    const auto [keys, values] = in_use_->cache->append(layer_, parts[1], parts[2]);
    return out_->forward(cached_attention(parts[0], keys, values).transpose(1, 2).flatten(2));
  }

  nn::Kernels kernels_;
  std::int64_t width_;  // of a head
  std::string gelu_;    // LibTorch's name of the approximation
  std::shared_ptr<const CacheInUse> in_use_;
  std::size_t layer_;
  LayerNorm n1_;
  LayerNorm n2_;
  Linear qkv_;
  Linear out_;
  Linear up_;
  Linear down_;
};

// A last layer with the weight of the embedding.
class TiedLinear final : public torch::nn::Module {
 public:
  explicit TiedLinear(const at::Tensor& weight) : weight_(register_parameter("weight", weight)) {}
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight_); }

 private:
  at::Tensor weight_;
};

class LanguageHead final : public torch::nn::Module {
 public:
  LanguageHead(const GptOptions& o, const at::Tensor& embedding)
      : kernels_(o.kernels), norm_(register_module("norm", make_norm(o.dim))) {
    if (o.tied) {
      tied_ = register_module("linear", std::make_shared<TiedLinear>(embedding));
    } else {
      linear_ = register_module(
          "linear", std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(o.dim, o.vocab).bias(false)));
    }
  }

  nn::Carry forward(const nn::Carry& stream) {
    const bool fused = nn::are_fused(kernels_, stream[0].device());
    const at::Tensor x = fused ? normalised(stream, norm_).output : norm_->forward(stream[0]);
    return {tied_ ? tied_->forward(x) : linear_->forward(x)};
  }

 private:
  nn::Kernels kernels_;
  LayerNorm norm_;
  Linear linear_;  // one of the two is null
  std::shared_ptr<TiedLinear> tied_;
};

// The largest divisor of `dim` that is at most `most`.
std::int64_t largest_divisor(std::int64_t dim, std::int64_t most) {
  std::int64_t divisor = most;
  while (dim % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

double training_flops(const GptOptions& o, std::int64_t positions) {
  const std::int64_t weights = 12 * o.layers * o.dim * o.dim + o.vocab * o.dim;
  return static_cast<double>(positions) *
         (6.0 * static_cast<double>(weights) + 12.0 * static_cast<double>(o.layers * o.dim * positions));
}

Gpt::Gpt(const GptOptions& options) : options_(options), in_use_(std::make_shared<CacheInUse>()) {
  const GptOptions& o = options_;
  REIGEN_CHECK(o.vocab >= 1 && o.layers >= 1 && o.dim >= 1 && o.heads >= 1 && o.context >= 1,
               "a decoder of vocab {}, layers {}, dim {}, heads {}, context {}: all must be at least 1", o.vocab,
               o.layers, o.dim, o.heads, o.context);
  REIGEN_CHECK(
      o.dim % o.heads == 0,
      "a decoder's width is not divided by its heads\n  got: model.heads {}, model.dim {}   expected: model.dim a "
      "multiple of model.heads\n  fix: model.heads {}, say, or another model.dim",
      o.heads, o.dim, largest_divisor(o.dim, o.heads));
  const auto embed = register_module("embed", std::make_shared<Embed>(o, in_use_));
  units_.emplace_back("embed", embed);
  const auto blocks = register_module("blocks", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < o.layers; ++i) {
    const std::string number = std::to_string(i);
    units_.emplace_back(
        "blocks." + number,
        blocks->register_module(number, std::make_shared<Block>(o, in_use_, static_cast<std::size_t>(i))));
  }
  units_.emplace_back("head", register_module("head", std::make_shared<LanguageHead>(o, embed->weight())));
}

void Gpt::initialize(std::uint64_t seed) {
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(options_.layers));
  for (const auto& item : named_parameters()) {
    const std::string_view name = item.key();
    const at::Tensor values = item.value().detach();
    if (values.dim() == 2) {
      const bool to_residual = name.ends_with(".out.weight") || name.ends_with(".down.weight");
      nn::fill_normal(values, name, seed, to_residual ? residual : 0.02);
    } else {
      values.fill_(name.ends_with(".weight") ? 1.0 : 0.0);
    }
  }
}

at::Tensor Gpt::forward(const at::Tensor& tokens) { return decode(units_, tokens, options_.context); }

at::Tensor Gpt::forward(const at::Tensor& tokens, KeyValueCache& cache) {
  return decode(units_, tokens, options_.context, *in_use_, cache);
}

}  // namespace reigen::models
