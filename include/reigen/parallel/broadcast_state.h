// Copies one rank's model and optimizer to all ranks. Use these functions after one rank has loaded a checkpoint, or
// before the first step.
//
//   reigen::broadcast_parameters(*model, 0, world);
//   reigen::broadcast_optimizer_state(optimizer, 0, world);
//
// broadcast_parameters() and broadcast_optimizer_state() block. Every rank must call them, in the same order.
// data_parallel() and DistributedOptimizer broadcast rank 0's parameters and buffers by themselves.
// Thread rule: one thread at a time may call the functions, and only while no other code uses the module or the
// optimizer.
#pragma once

#include "reigen/comm/communicator.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn
namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace reigen::parallel {

// Sets the parameters and buffers of every rank to the values on rank `root`. The parameters and buffers may have any
// types. Gradients do not change. Autograd's version counters do not change either, so a graph that saved one of these
// tensors can still run its backward. If the models differ, every rank throws InvalidArgument. The error names the
// first difference, and shows what both ranks have there. Cost: one small all_gather, one broadcast of all values, and
// memory for one more copy of all values.
void broadcast_parameters(torch::nn::Module& module, int root, Communicator world);

// Copies the options of the parameter groups (learning rate, ...) and the state of every parameter from rank `root` to
// every other rank. State that rank `root` does not have is dropped. The optimizer's defaults, which apply to groups
// that are added later, do not change. Works for any optimizer of torch::optim that can be saved. Parameter i of a
// group on rank `root` corresponds to parameter i of the same group on every rank. Throws InvalidArgument on every rank
// when the optimizers' types, groups or shapes differ. Cost: that of broadcast_parameters(). During the call the state
// is in memory three times.
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root, Communicator world);

}  // namespace reigen::parallel

namespace reigen {
using parallel::broadcast_optimizer_state;
using parallel::broadcast_parameters;
}  // namespace reigen
