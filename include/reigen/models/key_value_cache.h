// The keys and values of the positions that a decoder has seen, so that it computes each position once while it
// generates a text:
//
//   models::KeyValueCache cache;
//   at::Tensor scores = model.forward(prompt, cache);          // [B,T] tokens
//   ... scores = model.forward(next, cache);                   // [B,1] tokens, the position T
//
// Thread rule: a cache belongs to one sequence of calls of one model; one thread at a time may use it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace reigen::models {

class KeyValueCache {
 public:
  // The number of positions that all layers have seen.
  std::int64_t positions() const { return positions_; }
  void clear();  // the next call begins at position 0 again, also with another number of samples

  // ---- for models

  // Appends the keys and values [B,H,T,W] of new positions in one layer, and returns those of all positions up to them.
  // Throws InvalidArgument if B, H, W, type or device differ from before.
  std::pair<at::Tensor, at::Tensor> append(std::size_t layer, const at::Tensor& keys, const at::Tensor& values);
  // Called when all layers have appended `count` positions.
  void advance(std::int64_t count) { positions_ += count; }

 private:
  struct Layer {
    at::Tensor keys;  // room for more positions than there are
    at::Tensor values;
  };
  std::vector<Layer> layers_;
  std::int64_t positions_ = 0;
};

}  // namespace reigen::models
