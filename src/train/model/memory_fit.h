// Does what a run holds between steps fit where its ranks run? Asked before any of it takes memory, so that the answer
// is an error that says what would fit, and no process that the kernel ends.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/machine/available_memory.h"
#include "reigen/comm/communicator.h"
#include "reigen/parallel/layout_of.h"
#include "reigen/train/config.h"

namespace reigen::train {

// By the layout that `inputs` come to (with the states of the optimizer among its choices), with the weights of the
// module as they are now counted as there; with the copies of checkpoint.asynchronous, and the whole gradients that
// stay between micro-batches where a rank has `samples` in a step. Ranks of one machine that draw from the same memory
// are added up. Activations, and the weights and gradients of the units that compute, are not part of it. Collective;
// throws on every rank an error that is_common() (71) with what is needed, what is there, by which limit, and which
// division or number of ranks would fit.
void require_room(
    const torch::nn::Module& module, const parallel::LayoutInputs& inputs, const Config& config, std::int64_t samples,
    const Communicator& world,
    const std::function<base::AvailableMemory()>& available = [] { return base::available_memory(); });

// The same for `bytes` that every rank is about to take beside what it holds, and a fix of the caller's.
void require_room(
    const char* what, std::int64_t bytes, const std::string& fix, const Communicator& world,
    const std::function<base::AvailableMemory()>& available = [] { return base::available_memory(); });

}  // namespace reigen::train
