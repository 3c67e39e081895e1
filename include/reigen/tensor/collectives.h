// Collective operations on tensors, with gradients for autograd. There are P ranks, and this rank has the number r. x_q
// is rank q's tensor.
//
//   auto mean = reigen::all_reduce(loss.detach(), world, {.op = reigen::ReduceOp::kAvg});
//   auto all = reigen::all_gather(features, group);            // rows of all ranks, however many each has
//   contrastive_loss(all).backward();                           // gradients are sent back
//
// Tensors lie on the CPU, or on the GPU of the group (GroupOptions::device). With tensors of the CPU all functions
// block. With tensors of a GPU a call begins after the work on LibTorch's current stream, and later work on this stream
// runs after the call. The host waits only until the call has been launched on the GPU; in the cases that
// Work::wait_on() lists (comm/work.h) it waits until the call is complete. Every rank calls the same functions in the
// same order, with tensors of one element type and one shape; with some functions the first dimension may differ.
// Tensors may have any strides, and may be empty. Results are new and contiguous; ranks that get the same result get
// the same bits.
//
// Gradients: if a tensor requires a gradient, the result does too, and its backward is also a collective. Either all
// ranks or none must require a gradient, and every rank must run backward through the same calls in the same order. The
// reductions of a training loop have an order of their own, so use a group of its own, world.split(0), for calls within
// a model. Backward with create_graph = true works. LibTorch runs the backward of a GPU's tensors on one thread for
// each GPU and process, so ranks that are threads of one process can call these functions within a model only if each
// rank has a GPU of its own.
//
// Errors: InvalidArgument on this rank for a tensor that cannot be sent (on another device, sparse, or of a type that
// to_data_type() refuses), and for a scale other than 1 for integers. all_gather and all_to_all throw InvalidArgument
// on every rank if the ranks' tensors do not fit together; the error names the rank and both tensors. The other
// functions send no extra message for this check: if tensors differ between ranks, they throw CollectiveMismatch, and
// the group cannot be used any more. In addition, all functions throw the errors of Communicator's operations.
// Thread rule: as for Communicator: a rank makes its calls one after the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::tensor {

struct ReduceOptions {
  ReduceOp op = ReduceOp::kSum;
  // Floating point only; both may differ between ranks. The prescale of a sum costs nothing; every other scale costs a
  // pass.
  double prescale = 1;   // multiplies the tensor that this rank gives
  double postscale = 1;  // multiplies the result that this rank gets
};

// With pre_q and post_q, the prescale and postscale of rank q: y_r = post_r · op over q of pre_q · x_q, elementwise.
// Gradient of a sum or average: pre_r · op over q of post_q · dy_q. With another `op` backward throws InvalidArgument
// on every rank. Cost: that of Communicator::all_reduce().
at::Tensor all_reduce(const at::Tensor& tensor, Communicator world, const ReduceOptions& options = {});

// The same for several tensors, with one all_reduce for each element type (tensor fusion). It costs two more copies of
// each tensor, and saves P - 1 waits for other ranks per tensor.
std::vector<at::Tensor> grouped_all_reduce(const std::vector<at::Tensor>& tensors, Communicator world,
                                           const ReduceOptions& options = {});

// The same in place, for one tensor and for several. Throws InvalidArgument if a tensor requires a gradient: use the
// versions above for such tensors.
void all_reduce_(const at::Tensor& tensor, Communicator world, const ReduceOptions& options = {});
void grouped_all_reduce_(const std::vector<at::Tensor>& tensors, Communicator world, const ReduceOptions& options = {});

// y = the rows (first dimension) of x_0, then those of x_1, ...; ranks may have different numbers of rows, or none.
// Gradient: this rank's rows of the sum over q of dy_q. Cost: a message of 0.5 KiB from each rank, then that of
// Communicator::all_gather_v().
at::Tensor all_gather(const at::Tensor& tensor, Communicator world);

// y = x_root; the tensors of the other ranks only give shape and type. Gradient: sum over q of dy_q on root, zero
// elsewhere.
at::Tensor broadcast(const at::Tensor& tensor, int root, Communicator world);
void broadcast_(const at::Tensor& tensor, int root, Communicator world);  // in place, without a gradient

// y_r = part r of the rows of all_reduce's result. Of n rows each rank gets n / P, rounded down, and the first n % P
// ranks get one more. Gradient: pre_r · all parts post_q · dy_q, one after the other (for an average also divided by
// P).
at::Tensor reduce_scatter(const at::Tensor& tensor, Communicator world, const ReduceOptions& options = {});

struct AllToAllResult {
  at::Tensor tensor;                          // the rows from rank 0, from rank 1, ...
  std::vector<std::int64_t> received_splits;  // how many rows came from each rank
};
// The first splits[0] rows go to rank 0, the next splits[1] rows to rank 1, and so on. If `splits` is empty, every rank
// gets the same number of rows; P must then divide the number of rows. Gradient: each row's gradient goes back to the
// rank that sent the row. Cost: two small messages from each rank, then that of Communicator::all_to_all_v().
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
