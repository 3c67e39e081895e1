// Collective operations on tensors, which autograd can follow. P ranks, this one is r; x_q is rank q's tensor.
//
//   auto mean = reigen::all_reduce(loss.detach(), world, {.op = reigen::ReduceOp::kAvg});
//   auto all = reigen::all_gather(features, group);            // rows of all ranks, however many each has
//   contrastive_loss(all).backward();                           // the gradients travel back
//
// All functions block. Every rank calls the same functions in the same order, with tensors of one element type and one
// shape; where a function says so, the first dimension may differ. Tensors may have any strides and no elements.
// Results are new and contiguous; ranks that get the same result get the same bits.
//
// Gradients: if a tensor requires a gradient the result does too, and its backward is a collective as well. All ranks
// or none must want a gradient, and every rank must run backward through the same calls in the same order. The
// reductions of a training loop come in an order of their own, so give calls within a model a group of their own,
// world.split(0). Backward with create_graph = true works.
//
// Errors: InvalidArgument on this rank for a tensor that cannot be moved (not on the CPU, sparse, of a type that
// to_data_type() refuses) and for a scale for integers. all_gather and all_to_all throw InvalidArgument on every rank
// if the ranks' tensors do not fit; it names the rank and both tensors. The other functions send no extra message for
// this check: tensors that differ between ranks are a CollectiveMismatch there, and the group cannot be used any more.
// The errors of Communicator's operations come besides these.
// Thread rule: as Communicator's: calls of one rank one after the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

struct ReduceOptions {
  ReduceOp op = ReduceOp::kSum;
  // Floating point only; both may differ between ranks. For sums prescale costs nothing; otherwise each costs a pass.
  double prescale = 1;   // factor of the tensor that a rank gives
  double postscale = 1;  // factor of the result that it gets
};

// y_r = post_r · op over q of pre_q · x_q, elementwise. Gradient of a sum or average: pre_r · op over q of post_q ·
// dy_q; of other operations: backward throws InvalidArgument on every rank. Cost: Communicator::all_reduce.
at::Tensor all_reduce(const at::Tensor& tensor, Communicator world, const ReduceOptions& options = {});

// The same for every tensor, with one all_reduce for each element type: tensor fusion. It costs two more copies of
// each tensor and saves P - 1 waits per tensor.
std::vector<at::Tensor> grouped_all_reduce(const std::vector<at::Tensor>& tensors, Communicator world,
                                           const ReduceOptions& options = {});

// The same in place. Throws InvalidArgument where a gradient is wanted: use the versions above for that.
void all_reduce_(const at::Tensor& tensor, Communicator world, const ReduceOptions& options = {});
void grouped_all_reduce_(const std::vector<at::Tensor>& tensors, Communicator world, const ReduceOptions& options = {});

// y = the rows (first dimension) of x_0, then those of x_1, ...; ranks may have different numbers of rows, or none.
// Gradient: this rank's rows of the sum over q of dy_q. Cost: a message of 0.5 KiB from each rank, then
// Communicator::all_gather_v.
at::Tensor all_gather(const at::Tensor& tensor, Communicator world);

// y = x_root; the other ranks' tensors give shape and type. Gradient: sum over q of dy_q on root, zero elsewhere.
at::Tensor broadcast(const at::Tensor& tensor, int root, Communicator world);
void broadcast_(const at::Tensor& tensor, int root, Communicator world);  // in place, without a gradient

// y_r = the r-th part of the rows of all_reduce's result, cut as evenly as possible: of n rows each rank gets n / P,
// and the first n % P ranks get one more. Gradient: pre_r · all parts post_q · dy_q, one after the other (for an
// average also divided by P).
at::Tensor reduce_scatter(const at::Tensor& tensor, Communicator world, const ReduceOptions& options = {});

struct AllToAllResult {
  at::Tensor tensor;                          // the rows from rank 0, from rank 1, ...
  std::vector<std::int64_t> received_splits;  // how many rows came from each rank
};
// The first splits[0] rows go to rank 0, the next splits[1] to rank 1, ...; no splits: equal parts. Gradient: each
// row's gradient goes back to the rank that sent the row. Cost: two small messages from each rank, then
// Communicator::all_to_all_v.
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
