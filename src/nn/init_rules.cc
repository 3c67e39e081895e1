#include "nn/init_rules.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>

#include <cmath>
#include <optional>

#include "reigen/nn/init.h"

namespace reigen::nn {

namespace {

using torch::nn::Module;

// Sets values of one module's parameters. `prefix` is the module's prefix in the whole model; it is a part of the
// parameters' names, on which the values depend.
struct InModel {
  const std::string& prefix;
  std::uint64_t seed;

  void uniform(const at::Tensor& parameter, const std::string& name, double bound) const {
    fill_uniform(parameter.detach(), prefix + name, seed, bound);
  }
  void normal(const at::Tensor& parameter, const std::string& name, double deviation) const {
    fill_normal(parameter.detach(), prefix + name, seed, deviation);
  }
};

struct Fans {
  double in = 0;
  double out = 0;
};

Fans fans_of(const at::Tensor& weight) {
  const double outputs = static_cast<double>(weight.size(0));
  const double inputs = static_cast<double>(weight.size(1));
  const double positions =
      inputs * outputs > 0 ? static_cast<double>(weight.numel()) / (inputs * outputs) : 0.0;  // positions of one kernel
  return {.in = inputs * positions, .out = outputs * positions};
}

// Glorot and Bengio, https://proceedings.mlr.press/v9/glorot10a.html
double xavier_deviation(const at::Tensor& weight) {
  const Fans fans = fans_of(weight);
  return fans.in + fans.out > 0 ? std::sqrt(2.0 / (fans.in + fans.out)) : 0.0;
}

void xavier_uniform(const InModel& place, const at::Tensor& weight, const std::string& name) {
  place.uniform(weight, name, std::sqrt(3.0) * xavier_deviation(weight));
}

void all_uniform(const InModel& place, const Module& module, std::int64_t size) {
  const double bound = size > 0 ? 1.0 / std::sqrt(static_cast<double>(size)) : 0.0;
  for (const auto& item : module.named_parameters(false)) place.uniform(item.value(), item.key(), bound);
}

void fill(const at::Tensor& parameter, double value) {
  if (parameter.defined()) parameter.detach().fill_(value);
}

// An embedding that was created from given weights (from_pretrained, options._weight) keeps them.
template <class Embedding>
bool initialize_embedding(const InModel& place, Embedding* embedding) {
  if (embedding == nullptr) return false;
  if (embedding->options._weight().defined()) return true;
  place.normal(embedding->weight, "weight", 1.0);
  const auto padding = embedding->options.padding_idx();
  if (padding) embedding->weight.detach().select(0, *padding).zero_();
  return true;
}

template <class... Bases>
bool initialize_recurrent(const InModel& place, Module& module) {
  const auto one = [&](auto* recurrent) {
    if (recurrent == nullptr) return false;
    all_uniform(place, *recurrent, recurrent->options_base.hidden_size());
    return true;
  };
  return (one(dynamic_cast<Bases*>(&module)) || ...);
}

void initialize_attention(const InModel& place, torch::nn::MultiheadAttentionImpl& attention) {
  for (const auto& item : attention.named_parameters(false)) {
    const std::string& name = item.key();
    if (name == "in_proj_bias")
      fill(item.value(), 0);
    else if (name == "bias_k" || name == "bias_v")
      place.normal(item.value(), name, xavier_deviation(item.value()));
    else
      xavier_uniform(place, item.value(), name);
  }
  if (attention.in_proj_bias.defined()) fill(attention.out_proj->bias, 0);
}

// Overwrites the values that the rules of the Transformer's layers have set.
void initialize_transformer(const InModel& place, torch::nn::TransformerImpl& transformer) {
  for (const auto& item : transformer.named_parameters()) {
    if (item.value().dim() > 1) xavier_uniform(place, item.value(), item.key());
  }
}

}  // namespace

bool initialize_by_type(Module& module, const std::string& prefix, std::uint64_t seed) {
  namespace of_torch = torch::nn;
  namespace detail = torch::nn::detail;
  const InModel place{prefix, seed};
  if (initialize_embedding(place, dynamic_cast<of_torch::EmbeddingImpl*>(&module))) return true;
  if (initialize_embedding(place, dynamic_cast<of_torch::EmbeddingBagImpl*>(&module))) return true;
  if (initialize_recurrent<detail::RNNImplBase<of_torch::RNNImpl>, detail::RNNImplBase<of_torch::LSTMImpl>,
                           detail::RNNImplBase<of_torch::GRUImpl>, detail::RNNCellImplBase<of_torch::RNNCellImpl>,
                           detail::RNNCellImplBase<of_torch::LSTMCellImpl>,
                           detail::RNNCellImplBase<of_torch::GRUCellImpl>>(place, module)) {
    return true;
  }
  if (auto* attention = dynamic_cast<of_torch::MultiheadAttentionImpl*>(&module)) {
    initialize_attention(place, *attention);
  } else if (auto* transformer = dynamic_cast<of_torch::TransformerImpl*>(&module)) {
    initialize_transformer(place, *transformer);
  } else if (auto* bilinear = dynamic_cast<of_torch::BilinearImpl*>(&module)) {
    all_uniform(place, *bilinear, bilinear->weight.size(1));
  } else if (auto* prelu = dynamic_cast<of_torch::PReLUImpl*>(&module)) {
    fill(prelu->weight, prelu->options.init());
  } else if (auto* norm = dynamic_cast<of_torch::LayerNormImpl*>(&module)) {
    fill(norm->weight, 1);  // initialize_by_names() would set a weight of two dimensions like that of a linear layer
    fill(norm->bias, 0);
  } else {
    return false;
  }
  return true;
}

}  // namespace reigen::nn
