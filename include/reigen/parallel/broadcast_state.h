// One rank's model and optimizer for all: after loading a checkpoint on one rank, or before the first step.
//
//   reigen::broadcast_parameters(*model, 0, world);
//   reigen::broadcast_optimizer_state(optimizer, 0, world);
//
// Blocking; every rank calls them in the same order. data_parallel() and DistributedOptimizer do the former for rank 0.
// Thread rule: one thread at a time, while nothing else uses the module or the optimizer.
#pragma once

#include "reigen/comm/communicator.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn
namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace reigen::parallel {

// Parameters and buffers of every rank = those of the root, of any types; gradients stay. Autograd does not notice: a
// graph that saved one of them stays usable. Throws InvalidArgument on every rank when the models differ, naming the
// first difference and both sides. Cost: one small all_gather and one broadcast of all values, through one copy.
void broadcast_parameters(torch::nn::Module& module, int root, Communicator world);

// Options of the groups (learning rate, ...) and the state of every parameter = those of the root: state that the root
// lacks is dropped. The optimizer's defaults, with which later groups would begin, stay. Any optimizer of torch::optim
// that can be saved; parameters correspond by their place in the groups. Throws InvalidArgument on every rank when the
// optimizers' types, groups or shapes differ. Cost: as broadcast_parameters; the state is in memory three times.
void broadcast_optimizer_state(torch::optim::Optimizer& optimizer, int root, Communicator world);

}  // namespace reigen::parallel

namespace reigen {
using parallel::broadcast_optimizer_state;
using parallel::broadcast_parameters;
}  // namespace reigen
