// The part of each sequence that this rank computes, if ranks divide the sequences of a model (context parallelism,
// reigen/parallel/context_parallel.h). Layers that look at positions ask here: attention, rotary embeddings and tables
// of positions.
//
// Thread rule: a SequencePart acts on the thread that calls use_on_this_thread().
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

namespace reigen::nn {

class SequencePart {
 public:
  virtual ~SequencePart() = default;
  // The positions in the whole sequence of the `count` tokens that this rank has, int64.
  virtual at::Tensor positions(std::int64_t count, const at::Device& device) const = 0;
  // The number of tokens of the whole sequence. The same on all ranks, so all refuse a sequence that is too long.
  virtual std::int64_t length(std::int64_t count) const = 0;
  // Attention of this rank's queries to the keys and values of all ranks. The tensors have the shape [B, heads, T,
  // width]. Each query sees all keys, or with `is_causal` those at its own position and at earlier ones.
  virtual at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, bool is_causal,
                               double scale) const = 0;
};

// From now on models on this thread compute with this part, until `part` is destroyed or another call replaces it. With
// null they compute with whole sequences.
void use_on_this_thread(const std::shared_ptr<const SequencePart>& part);
// The part with which models on this thread compute; null for whole sequences.
std::shared_ptr<const SequencePart> sequence_part();

// The rows of a table [positions, features] for the `count` tokens that this rank has: the rows from `first` on, if
// sequences are whole. Throws InvalidArgument if the table has too few rows.
at::Tensor rows_of_positions(const at::Tensor& table, std::int64_t count, std::int64_t first = 0);

}  // namespace reigen::nn
