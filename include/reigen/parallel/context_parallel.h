// Context parallelism: the ranks along a mesh axis divide each sequence. Every rank computes its own tokens, and
// attention sends keys and values around the ring of these ranks.
//
//   reigen::Mesh mesh(world, {{"dp_shard", reigen::mesh::kRest}, {"cp", 2}});
//   const reigen::ContextParallel context(mesh);
//   auto parallel = reigen::data_parallel(model, world, {.context_parallel = context});
//   ...
//   auto scores = parallel(context.take(tokens));                         // [batch, T / 2, vocabulary]
//   auto loss = cross_entropy(scores, context.take(targets));             // the mean over this rank's tokens
//   loss.backward();                                                      // gradients: the mean over all ranks
//
// If the loss leaves out some targets (padding), ranks have different numbers of terms. The loss of one process is then
// the mean over the ranks of: the sum over this rank's terms, times P, divided by the number of terms of all P ranks.
//
// Of P ranks, rank r has chunks r and 2P-1-r of the 2P chunks of a sequence (zigzag). So with causal attention all
// ranks compute equally much. Attention is exact: each rank adds up the results for the keys of one rank after the
// other, with the logarithms of the sums of their exponentials, and backward goes around the ring once more. On a
// thread that uses a ContextParallel, at::scaled_dot_product_attention, nn::causal_attention, nn::rotary and
// nn::rows_of_positions compute with the positions of this rank's tokens. All other layers must compute each token by
// itself.
//
// Cost, for B sequences of T tokens, with D features of keys, on P ranks: forward sends 2·B·T·D·(P-1)/P elements from
// each rank, and backward 2·B·T·D·(2P-1)/P. The next keys travel while the present ones are computed with.
// Errors: InvalidArgument for a sequence whose length is not a multiple of 2P, for attention with a mask or with
// dropout, and for keys of another length than the queries. The errors of Communicator's calls. Thread rule: as for the
// collectives on tensors (tensor/collectives.h).
//
// Source: Liu et al., Ring Attention, https://arxiv.org/abs/2310.01889; the zigzag order of Llama 3,
// https://arxiv.org/abs/2407.21783, section 3.3.2
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "reigen/mesh/mesh.h"

namespace reigen::parallel {

class ContextParallel {
 public:
  struct State;
  ContextParallel() = default;
  // Throws InvalidArgument if the mesh has no such axis. Does not communicate.
  explicit ContextParallel(const mesh::Mesh& mesh, const std::string& axis = "cp");

  // Whether there is one.
  explicit operator bool() const { return state_ != nullptr; }
  const mesh::Mesh& mesh() const;
  const std::string& axis() const;
  const Communicator& ranks() const;

  // This rank's tokens of the sequences that lie along `dimension`. All ranks along the axis give equal tensors. No
  // gradient goes back through take().
  at::Tensor take(const at::Tensor& whole, std::int64_t dimension = 1) const;
  // Models on the calling thread compute with this rank's tokens from now on, while a copy of this object lives; with
  // whole sequences if there is none, or only one rank. A forward of data_parallel()'s wrapper calls it with
  // DataParallelOptions::context_parallel.
  void use_on_this_thread() const;
  // Models on the calling thread compute with whole sequences again.
  static void stop_on_this_thread();

 private:
  std::shared_ptr<State> state_;
};

// Attention of this rank's queries to the keys and values of all ranks of the group, in zigzag order. The tensors have
// the shape [B, heads, T, width]; T is even, and the same on all ranks. Collective, and so is its backward.
//   y = softmax over the visible keys of (q·k·scale), times v
at::Tensor ring_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const Communicator& group, bool is_causal, double scale);

}  // namespace reigen::parallel

namespace reigen {
using parallel::ContextParallel;
}  // namespace reigen
