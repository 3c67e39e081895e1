// What ranks can say to each other in tensors, and autograd through it. P ranks, this one is r; x_q is rank q's tensor.
//
//   auto mean = reigen::all_reduce(loss.detach(), world, {.op = reigen::ReduceOp::kAvg});
//   auto all = reigen::all_gather(features, group);            // rows of all ranks, however many each has
//   contrastive_loss(all).backward();                           // the gradients travel back
//
// Blocking; every rank calls the same functions in the same order with tensors of one element type and, but for the
// first dimension where that is said, of one shape. Any strides; results are contiguous, new, and the same bits on
// every rank that gets the same. Tensors without elements are welcome.
//
// Gradients: where a tensor requires one the result does too, and backward is a collective as well. A gradient must be
// wanted on all ranks or on none, and every rank must run backward through the same calls in the same order. A training
// loop's reductions come in an order of their own: give calls inside of a model a group of their own, world.split(0).
// Backward with create_graph = true works.
//
// Errors: InvalidArgument on this rank for what no rank can move (not on the CPU, sparse, a type that to_data_type()
// refuses, a scale for integers); on every rank, naming the rank and both tensors, where all_gather and all_to_all are
// given what does not fit. The others cost no extra message: what differs between ranks is a CollectiveMismatch, and
// the group is dead. Those of Communicator's operations besides.
// Thread rule: as Communicator's: calls of one rank one after the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

struct ReduceOptions {
  ReduceOp op = ReduceOp::kSum;
  // Floating point only; both may differ between ranks. For sums the former costs nothing; elsewhere each is a pass.
  double prescale = 1;   // of what a rank gives
  double postscale = 1;  // of what it gets
};

// y_r = post_r · op over q of pre_q · x_q, elementwise. Gradient of a sum or average: pre_r · op over q of post_q ·
// dy_q; of anything else: backward throws InvalidArgument on every rank. Cost: Communicator::all_reduce.
at::Tensor all_reduce(const at::Tensor& tensor, Communicator world, const ReduceOptions& options = {});

// The same for every tensor, in one all_reduce for each element type: tensor fusion. Two copies of each tensor more,
// P - 1 waits less for each.
std::vector<at::Tensor> grouped_all_reduce(const std::vector<at::Tensor>& tensors, Communicator world,
                                           const ReduceOptions& options = {});

// In place. Throws InvalidArgument where a gradient is wanted: autograd takes the versions above.
void all_reduce_(const at::Tensor& tensor, Communicator world, const ReduceOptions& options = {});
void grouped_all_reduce_(const std::vector<at::Tensor>& tensors, Communicator world, const ReduceOptions& options = {});

// y = the rows (first dimension) of x_0, then those of x_1, ...; ranks may have different numbers of rows, or none.
// Gradient: own rows of the sum over q of dy_q. Cost: a message of 0.5 KiB a rank, then Communicator::all_gather_v.
at::Tensor all_gather(const at::Tensor& tensor, Communicator world);

// y = x_root; the other ranks' tensors give shape and type. Gradient: sum over q of dy_q on root, zero elsewhere.
at::Tensor broadcast(const at::Tensor& tensor, int root, Communicator world);
void broadcast_(const at::Tensor& tensor, int root, Communicator world);  // in place, without a gradient

// y_r = the r-th part of all_reduce's rows, cut as evenly as possible: of n rows a rank gets n / P, and the first n % P
// ranks one more. Gradient: pre_r · all parts of post_q · dy_q, one after the other (average: divided by P).
at::Tensor reduce_scatter(const at::Tensor& tensor, Communicator world, const ReduceOptions& options = {});

struct AllToAllResult {
  at::Tensor tensor;                          // from rank 0, from rank 1, ...
  std::vector<std::int64_t> received_splits;  // how many rows from each
};
// The first splits[0] rows go to rank 0, the next splits[1] to rank 1, ...; none given: equal parts. Gradient: the rows
// go back. Cost: two small messages a rank, then Communicator::all_to_all_v.
AllToAllResult all_to_all(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, Communicator world);

}  // namespace reigen::tensor

namespace reigen {
using tensor::all_gather;
using tensor::all_reduce;
using tensor::all_reduce_;
using tensor::all_to_all;
using tensor::broadcast;
using tensor::broadcast_;
using tensor::grouped_all_reduce;
using tensor::grouped_all_reduce_;
using tensor::reduce_scatter;
using tensor::ReduceOptions;
}  // namespace reigen
