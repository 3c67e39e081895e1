#include "reigen/models/llama.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "models/cached_attention.h"
#include "reigen/nn/activations.h"
#include "reigen/nn/embedding.h"
#include "reigen/nn/init.h"
#include "reigen/nn/norm.h"
#include "reigen/nn/rotary.h"

namespace reigen::models {

namespace {

using Linear = std::shared_ptr<torch::nn::LinearImpl>;
using Embedding = std::shared_ptr<torch::nn::EmbeddingImpl>;

Linear make_linear(std::int64_t in, std::int64_t out) {
  return std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(in, out).bias(false));
}

class RmsNorm final : public torch::nn::Module {
 public:
  explicit RmsNorm(const LlamaOptions& o)
      : kernels_(o.kernels), eps_(o.norm_eps), weight_(register_parameter("weight", at::ones({o.dim}))) {}

  at::Tensor forward(const at::Tensor& x) {
    if (nn::are_fused(kernels_, x.device())) return nn::rms_norm(x, weight_, eps_);
    return at::rms_norm(x, weight_.sizes(), weight_, eps_);
  }

 private:
  nn::Kernels kernels_;
  double eps_;
  at::Tensor weight_;
};

class Attention final : public torch::nn::Module {
 public:
  Attention(const LlamaOptions& o, std::shared_ptr<const CacheInUse> in_use, std::size_t layer)
      : in_use_(std::move(in_use)),
        layer_(layer),
        width_(o.dim / o.heads),
        queries_of_key_(o.heads / o.kv_heads),
        context_(o.context),
        theta_(o.theta),
        q_(register_module("q_proj", make_linear(o.dim, o.heads * width_))),
        k_(register_module("k_proj", make_linear(o.dim, o.kv_heads * width_))),
        v_(register_module("v_proj", make_linear(o.dim, o.kv_heads * width_))),
        o_(register_module("o_proj", make_linear(o.heads * width_, o.dim))) {}

  at::Tensor forward(const at::Tensor& x) {
    // The number of heads is that of the tensors, because a rank may have only some heads.
    const auto heads = [this](const at::Tensor& all) { return all.view({all.size(0), all.size(1), -1, width_}); };
    const at::Tensor q = heads(q_->forward(x));
    const at::Tensor k = heads(k_->forward(x));
    const at::Tensor v = heads(v_->forward(x));
    const nn::RotaryTable& angles = table_for(q);
    const auto by_head = [](const at::Tensor& all) { return all.transpose(1, 2); };
    const auto for_queries = [this](const at::Tensor& all) {
      return queries_of_key_ == 1 ? all : all.repeat_interleave(queries_of_key_, 1);
    };
    const std::int64_t first = in_use_->first();
    const at::Tensor queries = by_head(nn::rotary(q, angles, first));
    const at::Tensor keys = by_head(nn::rotary(k, angles, first));
    at::Tensor y;
    if (in_use_->cache == nullptr) {
      y = at::scaled_dot_product_attention(queries, for_queries(keys), for_queries(by_head(v)),
                                           /*attn_mask=*/{}, /*dropout_p=*/0, /*is_causal=*/true);
    } else {
      const auto [all_keys, all_values] = in_use_->cache->append(layer_, keys, by_head(v));
      y = cached_attention(queries, for_queries(all_keys), for_queries(all_values));
    }
    return o_->forward(by_head(y).flatten(2));
  }

 private:
  const nn::RotaryTable& table_for(const at::Tensor& x) {
    const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    if (!table_.cosines.defined() || table_.cosines.device() != x.device() || table_.cosines.scalar_type() != type) {
      table_ = nn::rotary_table(context_, width_, theta_, type, x.device());
    }
    return table_;
  }

  std::shared_ptr<const CacheInUse> in_use_;
  std::size_t layer_;
  std::int64_t width_;
  std::int64_t queries_of_key_;
  std::int64_t context_;
  double theta_;
  nn::RotaryTable table_;
  Linear q_;
  Linear k_;
  Linear v_;
  Linear o_;
};

class LlamaMlp final : public torch::nn::Module {
 public:
  explicit LlamaMlp(const LlamaOptions& o)
      : kernels_(o.kernels),
        gate_(register_module("gate_proj", make_linear(o.dim, o.hidden))),
        up_(register_module("up_proj", make_linear(o.dim, o.hidden))),
        down_(register_module("down_proj", make_linear(o.hidden, o.dim))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor gate = gate_->forward(x);
    const at::Tensor up = up_->forward(x);
    return down_->forward(nn::are_fused(kernels_, x.device()) ? nn::swiglu(gate, up) : at::silu(gate) * up);
  }

 private:
  nn::Kernels kernels_;
  Linear gate_;
  Linear up_;
  Linear down_;
};

class DecoderLayer final : public torch::nn::Module {
 public:
  DecoderLayer(const LlamaOptions& o, std::shared_ptr<const CacheInUse> in_use, std::size_t layer)
      : n1_(register_module("input_layernorm", std::make_shared<RmsNorm>(o))),
        attention_(register_module("self_attn", std::make_shared<Attention>(o, std::move(in_use), layer))),
        n2_(register_module("post_attention_layernorm", std::make_shared<RmsNorm>(o))),
        mlp_(register_module("mlp", std::make_shared<LlamaMlp>(o))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = x + attention_->forward(n1_->forward(x));
    return y + mlp_->forward(n2_->forward(y));
  }

 private:
  std::shared_ptr<RmsNorm> n1_;
  std::shared_ptr<Attention> attention_;
  std::shared_ptr<RmsNorm> n2_;
  std::shared_ptr<LlamaMlp> mlp_;
};

// Its weight may be that of the embedding.
class Head final : public torch::nn::Module {
 public:
  explicit Head(const at::Tensor& weight) : weight_(register_parameter("weight", weight)) {}
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight_); }

 private:
  at::Tensor weight_;
};

void check(const LlamaOptions& o) {
  REIGEN_CHECK(
      o.vocab >= 1 && o.layers >= 1 && o.dim >= 1 && o.heads >= 1 && o.kv_heads >= 1 && o.hidden >= 1 && o.context >= 1,
      "a decoder of vocab {}, layers {}, dim {}, heads {}, kv_heads {}, hidden {}, context {}: all must be at "
      "least 1",
      o.vocab, o.layers, o.dim, o.heads, o.kv_heads, o.hidden, o.context);
  REIGEN_CHECK(o.dim % (2 * o.heads) == 0,
               "a decoder's width does not consist of heads of an even width\n  got: model.heads {}, model.dim {}   "
               "expected: model.dim a multiple of 2·model.heads",
               o.heads, o.dim);
  REIGEN_CHECK(o.heads % o.kv_heads == 0,
               "the heads of keys are not shared by as many heads of queries each\n  got: model.heads {}, "
               "model.kv_heads {}   expected: model.kv_heads a divisor of model.heads",
               o.heads, o.kv_heads);
}

}  // namespace

double training_flops(const LlamaOptions& o, std::int64_t positions) {
  const std::int64_t attention = 2 * o.dim * o.dim + 2 * o.dim * (o.dim / o.heads * o.kv_heads);
  const std::int64_t weights = o.layers * (attention + 3 * o.dim * o.hidden) + o.vocab * o.dim;
  return static_cast<double>(positions) *
         (6.0 * static_cast<double>(weights) + 12.0 * static_cast<double>(o.layers * o.dim * positions));
}

Llama::Llama(const LlamaOptions& options) : options_(options), in_use_(std::make_shared<CacheInUse>()) {
  const LlamaOptions& o = options_;
  check(o);
  const auto model = register_module("model", std::make_shared<torch::nn::Module>());
  const Embedding embedding =
      model->register_module("embed_tokens", std::make_shared<torch::nn::EmbeddingImpl>(o.vocab, o.dim));
  units_.emplace_back("model.embed_tokens", embedding, [kernels = o.kernels, e = embedding.get()](const nn::Carry& in) {
    const bool fused = nn::are_fused(kernels, in.at(0).device());
    return nn::Carry{fused ? nn::embedding(in[0], e->weight) : e->forward(in[0])};
  });
  const auto layers = model->register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < o.layers; ++i) {
    const std::string number = std::to_string(i);
    units_.emplace_back(
        "model.layers." + number,
        layers->register_module(number, std::make_shared<DecoderLayer>(o, in_use_, static_cast<std::size_t>(i))));
  }
  units_.emplace_back("model.norm", model->register_module("norm", std::make_shared<RmsNorm>(o)));
  const at::Tensor weight = o.tied ? embedding->weight : at::empty({o.vocab, o.dim});
  units_.emplace_back("lm_head", register_module("lm_head", std::make_shared<Head>(weight)));
}

void Llama::initialize(std::uint64_t seed) {
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(options_.layers));
  for (const auto& item : named_parameters()) {
    const std::string_view name = item.key();
    const at::Tensor values = item.value().detach();
    if (values.dim() == 2) {
      const bool to_residual = name.ends_with(".o_proj.weight") || name.ends_with(".down_proj.weight");
      nn::fill_normal(values, name, seed, to_residual ? residual : 0.02);
    } else {
      values.fill_(1.0);
    }
  }
}

at::Tensor Llama::forward(const at::Tensor& tokens) { return decode(units_, tokens, options_.context); }

at::Tensor Llama::forward(const at::Tensor& tokens, KeyValueCache& cache) {
  return decode(units_, tokens, options_.context, *in_use_, cache);
}

}  // namespace reigen::models
