#include "reigen/models/key_value_cache.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "models/cached_attention.h"

namespace reigen::models {

namespace {

constexpr std::int64_t kLeastRoom = 64;  // positions

// Makes room for `wanted` positions. The room doubles, so that each position is copied a few times only.
void reserve(at::Tensor& held, const at::Tensor& like, std::int64_t used, std::int64_t wanted) {
  if (held.defined() && held.size(2) >= wanted) return;
  std::vector<std::int64_t> shape = like.sizes().vec();
  shape[2] = std::max({kLeastRoom, wanted, held.defined() ? 2 * held.size(2) : 0});
  const at::Tensor larger = at::empty(shape, like.options());
  if (used > 0) larger.narrow(2, 0, used).copy_(held.narrow(2, 0, used));
  held = larger;
}

}  // namespace

void KeyValueCache::clear() {
  layers_.clear();
  positions_ = 0;
}

std::pair<at::Tensor, at::Tensor> KeyValueCache::append(std::size_t layer, const at::Tensor& keys,
                                                        const at::Tensor& values) {
  REIGEN_CHECK(keys.dim() == 4 && keys.sizes() == values.sizes(), "keys [{}] and values [{}]: both have [B, H, T, W]",
               fmt::join(keys.sizes(), ", "), fmt::join(values.sizes(), ", "));
  if (layer >= layers_.size()) layers_.resize(layer + 1);
  Layer& held = layers_[layer];
  REIGEN_CHECK(
      !held.keys.defined() || (held.keys.size(0) == keys.size(0) && held.keys.size(1) == keys.size(1) &&
                               held.keys.size(3) == keys.size(3) && held.keys.scalar_type() == keys.scalar_type() &&
                               held.keys.device() == keys.device()),
      "a cache of [{}] cannot take keys of [{}]: clear() it before another batch or model",
      fmt::join(held.keys.sizes(), ", "), fmt::join(keys.sizes(), ", "));
  const std::int64_t count = keys.size(2);
  const std::int64_t all = positions_ + count;
  const auto put = [&](at::Tensor& into, const at::Tensor& from) {
    reserve(into, from, positions_, all);
    into.narrow(2, positions_, count).copy_(from);
    return into.narrow(2, 0, all);
  };
  const at::Tensor seen_keys = put(held.keys, keys);
  return {seen_keys, put(held.values, values)};
}

at::Tensor cached_attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values) {
  const std::int64_t count = queries.size(2);
  const std::int64_t all = keys.size(2);
  if (count == all || count == 1) {  // a single query attends to all positions
    return at::scaled_dot_product_attention(queries, keys, values, /*attn_mask=*/{}, /*dropout_p=*/0,
                                            /*is_causal=*/count == all && count > 1);
  }
  const at::Tensor seen = at::ones({count, all}, queries.options().dtype(at::kBool)).tril(all - count);
  return at::scaled_dot_product_attention(queries, keys, values, seen);
}

at::Tensor decode(const std::vector<nn::Unit>& units, const at::Tensor& tokens, std::int64_t context) {
  REIGEN_CHECK(tokens.dim() == 2 && tokens.size(1) <= context,
               "tokens of shape [{}]: the decoder takes [batch, at most {}]", fmt::join(tokens.sizes(), ", "), context);
  return nn::fold(units, nn::Carry{tokens}).front();
}

at::Tensor decode(const std::vector<nn::Unit>& units, const at::Tensor& tokens, std::int64_t context,
                  CacheInUse& in_use, KeyValueCache& cache) {
  REIGEN_CHECK(tokens.dim() == 2 && tokens.size(1) <= context - cache.positions(),
               "tokens of shape [{}] after {} positions: the decoder takes [batch, at most {} positions together]",
               fmt::join(tokens.sizes(), ", "), cache.positions(), context);
  at::Tensor scores;
  {
    const UseCache use(in_use, cache);
    scores = nn::fold(units, nn::Carry{tokens}).front();
  }
  cache.advance(tokens.size(1));
  return scores;
}

}  // namespace reigen::models
