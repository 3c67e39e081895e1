// Attention with the keys and values of earlier positions (key_value_cache.h). Thread rule: as for the models.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "reigen/models/key_value_cache.h"
#include "reigen/nn/unit.h"

namespace reigen::models {

// The cache of the call under way, which a model shares with its layers; null outside of such a call.
struct CacheInUse {
  KeyValueCache* cache = nullptr;
  std::int64_t first() const { return cache != nullptr ? cache->positions() : 0; }  // the first new position
};

// Sets the cache for the time of a call.
class UseCache {
 public:
  UseCache(CacheInUse& place, KeyValueCache& cache) : place_(place) { place_.cache = &cache; }
  ~UseCache() { place_.cache = nullptr; }
  UseCache(const UseCache&) = delete;  // belongs to one call
  UseCache& operator=(const UseCache&) = delete;

 private:
  CacheInUse& place_;
};

// The forward of a decoder that consists of these units, for tokens [B,T]. With a cache the tokens follow those that
// the cache has seen; `in_use` is the place that the decoder's layers read. Both throw InvalidArgument for another
// shape, and for more than `context` positions.
at::Tensor decode(const std::vector<nn::Unit>& units, const at::Tensor& tokens, std::int64_t context);
at::Tensor decode(const std::vector<nn::Unit>& units, const at::Tensor& tokens, std::int64_t context,
                  CacheInUse& in_use, KeyValueCache& cache);

// The attention of the last T of `keys.size(2)` positions. All have the shape [B,H,positions,W]; the queries are those
// of the last T positions. A position attends to itself and to all earlier positions.
at::Tensor cached_attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values);

}  // namespace reigen::models
