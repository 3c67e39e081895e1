// Collective operations on tensors, with gradients for autograd. In the equations P is the number of ranks, r the
// number of this rank, x_q the tensor that rank q gives, and y_q the result on rank q. dy_q is the gradient that
// reaches y_q in backward.
//
//   auto mean = reigen::all_reduce(loss.detach(), world, {.op = reigen::ReduceOp::kAvg});
//   auto all = reigen::all_gather(features, group);            // rows of all ranks; each may have a different number
//   contrastive_loss(all).backward();                           // gradients are sent back
//
// Tensors lie on the CPU, or on the GPU of the group (GroupOptions::device). With tensors on the CPU all functions
// block. With tensors on a GPU a call begins after the work that is on LibTorch's current stream. Later work on this
// stream runs after the call. The host waits until the call has been launched on the GPU. Only in the cases that
// Work::wait_on() lists (comm/work.h) the host waits until the call is complete. Every rank must call the same
// functions in the same order. The tensors of all ranks must have the same element type and shape; in all_gather() and
// all_to_all() the first dimension may differ. Tensors may have any strides, and may be empty. Results are new,
// contiguous tensors. Ranks that get the same result get the same bits.
//
// Gradients: if a tensor requires a gradient, the result does too, and the backward of the result is also a collective.
// Either the tensors of all ranks must require a gradient, or none of them. Every rank must run backward through the
// same calls in the same order. data_parallel() also makes calls during backward, and their order relative to yours may
// differ between ranks. So use a separate group, world.split(0), for calls within a model. Backward with create_graph =
// true works. LibTorch runs the backward of a GPU's tensors on one thread for each GPU and process. If ranks are
// threads of one process, each rank therefore needs its own GPU to call these functions within a model.
//
// Errors: a function throws InvalidArgument on this rank for a tensor that cannot be sent (on another device, sparse,
// or of a type that to_data_type() refuses), and for a scale other than 1 with integers. If the ranks' tensors do not
// fit together, all_gather() and all_to_all() throw InvalidArgument on every rank. The error names a rank whose tensor
// differs, and shows both tensors. The other functions do not send messages for this check in advance. If their tensors
// differ between ranks, they throw CollectiveMismatch, and the group cannot be used any more. In addition, all
// functions throw the errors of Communicator's operations.
// Thread rule: each rank makes the calls of one group one after the other, in the same order as all other ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

struct ReduceOptions {
  ReduceOp op = ReduceOp::kSum;
  // Scales are for floating-point tensors only. Both scales may differ between ranks. The prescale of a sum costs no
  // time. Every other scale costs an extra pass over the tensor.
  double prescale = 1;   // multiplies the tensor that this rank gives
  double postscale = 1;  // multiplies the result that this rank gets
};

// y_r = post_r · (op over all q of pre_q · x_q), elementwise. pre_q and post_q are the prescale and the postscale of
// rank q. The gradient of a sum or average is pre_r · (op over all q of post_q · dy_q). With another `op` backward
// throws InvalidArgument on every rank. Cost: that of Communicator::all_reduce().
at::Tensor all_reduce(const at::Tensor& tensor, Communicator world, const ReduceOptions& options = {});

// The same as all_reduce() for several tensors, with one call for each element type (tensor fusion). It costs two more
// copies of each tensor, and saves the latency of a separate all_reduce for each tensor.
std::vector<at::Tensor> grouped_all_reduce(const std::vector<at::Tensor>& tensors, Communicator world,
                                           const ReduceOptions& options = {});

// all_reduce() and grouped_all_reduce() in place. They throw InvalidArgument if a tensor requires a gradient. Use the
// versions that are not in place for such tensors.
void all_reduce_(const at::Tensor& tensor, Communicator world, const ReduceOptions& options = {});
void grouped_all_reduce_(const std::vector<at::Tensor>& tensors, Communicator world, const ReduceOptions& options = {});

// The result consists of the rows (along the first dimension) of rank 0's tensor, then the rows of rank 1's tensor, and
// so on. Ranks may have different numbers of rows, or no rows. The gradient consists of this rank's rows of (sum over q
// of dy_q), where dy_q is the gradient of the result on rank q. Cost: a message of 0.5 KiB from each rank, and the cost
// of Communicator::all_gather_v().
at::Tensor all_gather(const at::Tensor& tensor, Communicator world);

// Every rank gets the tensor of rank `root`. Of the other ranks' tensors only shape and type matter. The gradient is
// (sum over q of dy_q) on rank `root`, and zero on the other ranks.
at::Tensor broadcast(const at::Tensor& tensor, int root, Communicator world);
void broadcast_(const at::Tensor& tensor, int root, Communicator world);  // in place, without a gradient

// Rank r of P gets part r of the rows of all_reduce()'s result. Of n rows each rank gets n / P, rounded down, and the
// first n % P ranks get one more row. The gradient is pre_r · (the rows of post_0 · dy_0, then of post_1 · dy_1, and so
// on), where pre_q and post_q are the scales of rank q. For an average the gradient is also divided by P.
at::Tensor reduce_scatter(const at::Tensor& tensor, Communicator world, const ReduceOptions& options = {});

struct AllToAllResult {
  at::Tensor tensor;                          // the rows from rank 0, then from rank 1, ...
  std::vector<std::int64_t> received_splits;  // how many rows came from each rank
};
// Sends the first splits[0] rows to rank 0, the next splits[1] rows to rank 1, and so on. If `splits` is empty, it
// sends the same number of rows to every rank; the number of rows must then be a multiple of P. In backward the
// gradient of each row returns to the rank that sent the row. Cost: two small messages from each rank, and the cost of
// Communicator::all_to_all_v().
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
