// The operations of tensor parallelism, with their gradients. A group of P ranks divides the weights of a layer. In the
// equations r is this rank, x_q the tensor that rank q gives, y_q its result, and dy_q the gradient that reaches y_q.
//
//   const at::Tensor h = at::gelu(column_parallel_linear(x, up, up_bias, region));      // each rank has some features
//   const at::Tensor y = row_parallel_linear(h, down, down_bias, region);               // every rank has all features
//
// Ranks hold the same activations between such pairs of layers. With Region::sequence each rank holds only its part of
// the sequence there: its rows [r·n/P, (r+1)·n/P) of n along Region::dimension, of which the first n mod P ranks have
// one more. Norms then compute on this part only. The same bytes are sent, and backward gathers the inputs of column
// layers once more.
//
// Every rank of the group must call the same functions in the same order, and run backward through them. All ranks
// compute the same loss, so the gradient of a replicated result is the same on all ranks and is not added up.
// Source: Shoeybi et al., Megatron-LM, https://arxiv.org/abs/1909.08053; Korthikanti et al., Reducing activation
// recomputation, https://arxiv.org/abs/2205.05198
// Errors: those of the collectives on tensors (tensor/collectives.h), and InvalidArgument for shapes that do not fit.
// Thread rule: as for the collectives on tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "reigen/comm/communicator.h"

namespace reigen::parallel {

// The ranks that divide a layer, and how they hold the activations before and after it.
struct Region {
  Communicator group = {};
  bool sequence = false;       // each rank holds its part of the sequence, otherwise all of it
  std::int64_t dimension = 1;  // the dimension of the sequence: 1 for tensors [batch, sequence, features]
};

// y_r = x_r; dx_r = sum over q of dy_q. All ranks give equal tensors. Cost: one all_reduce in backward.
at::Tensor copy_to_ranks(const at::Tensor& x, const Communicator& group);
// y_r = sum over q of x_q; dx_r = dy_r. Cost: one all_reduce in forward.
at::Tensor reduce_from_ranks(const at::Tensor& x, const Communicator& group);
// y_r = the x_q of all ranks, one after the other along `dimension`; dx_r = this rank's part of sum over q of dy_q.
// Cost: one all_gather in forward, one reduce_scatter in backward. Each rank may have another size along `dimension`.
at::Tensor gather_parts(const at::Tensor& x, std::int64_t dimension, const Communicator& group);
// y_r = this rank's part of sum over q of x_q; dx_r = the dy_q of all ranks, one after the other. The part is as with
// Region::sequence. Cost: one reduce_scatter in forward, one all_gather in backward.
at::Tensor reduce_to_parts(const at::Tensor& x, std::int64_t dimension, const Communicator& group);
// y_r = this rank's part of x_r, as with Region::sequence; dx_r = the dy_q of all ranks, one after the other. All ranks
// give equal tensors. Cost: one all_gather in backward.
at::Tensor take_part(const at::Tensor& x, std::int64_t dimension, const Communicator& group);
// y_r = the x_q of all ranks, one after the other along `dimension`; dx_r = this rank's part of dy_r. For results of
// which every rank computes the same loss. Cost: one all_gather in forward.
at::Tensor gather_results(const at::Tensor& x, std::int64_t dimension, const Communicator& group);

// y_r = x·weight_r' + bias_r, where weight_r are some rows of the whole weight [out, in], and bias_r the same elements
// of the bias (or undefined). With Region::sequence x is first gathered. Backward sends the gradient of x while it
// computes the gradient of the weight. Cost: one all_reduce in backward; with Region::sequence an all_gather in
// forward, an all_gather and a reduce_scatter in backward.
at::Tensor column_parallel_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                  const Region& region);
// y_r = sum over q of x_q·weight_q' + bias, where weight_q are some columns of the whole weight, and x_q the same
// features of x. With Region::sequence each rank gets its part of this sum. `bias` is whole on every rank. Cost: one
// all_reduce in forward; with Region::sequence a reduce_scatter in forward and an all_gather in backward.
at::Tensor row_parallel_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                               const Region& region);
// The part of a vocabulary that a rank has: the tokens `first`, `first` + 1, ... of all `size` tokens.
struct VocabPart {
  std::int64_t first = 0;
  std::int64_t size = 0;
};

// y_r = rows `ids` of the whole table [vocabulary, dim], of which `table` has this rank's rows. With Region::sequence
// each rank gets its part. Cost: one all_reduce (with Region::sequence a reduce_scatter) in forward. Throws
// InvalidArgument for a token outside of the vocabulary. On a GPU such a token gives NaN, because the host does not
// wait to see it.
at::Tensor vocab_parallel_embedding(const at::Tensor& ids, const at::Tensor& table, const VocabPart& part,
                                    const Region& region);

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  // targets of this value count for nothing
  bool sum = false;                  // true: the sum over the targets; false: their mean
};
// The cross-entropy of logits whose last dimension, the vocabulary, is divided among the ranks: this rank has the
// scores of its part. Every rank gets
//   sum or mean over all i with targets[i] != ignore_index of  log(sum over v of exp(logits[i][v])) - logits[i][target]
// No rank gathers the logits. `logits` has the shape [..., n], `targets` the same without the last dimension. Cost: two
// all_reduces in forward, of one and of two numbers for each target; nothing in backward. Throws InvalidArgument for
// other shapes and for a target outside of the vocabulary; on a GPU such a target gives infinity.
at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& targets, const VocabPart& part,
                                        const Communicator& group, const CrossEntropyOptions& options = {});

}  // namespace reigen::parallel

namespace reigen {
using parallel::Region;
}  // namespace reigen
