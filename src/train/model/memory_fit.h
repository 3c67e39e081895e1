// Checks whether the data that a run holds between steps fit into memory. The check is made before the memory is taken.
// So the user gets an error that says what would fit, and the kernel does not kill the process.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <string>

#include "base/machine/available_memory.h"
#include "reigen/base/error.h"
#include "reigen/comm/communicator.h"
#include "reigen/parallel/layout_of.h"
#include "reigen/train/config.h"
#include "train/model/memory_use.h"

namespace reigen::train {

// Collective. Checks whether weights, gradients and optimizer states fit into the free memory that `available` returns:
// the memory of the GPU if the model is on a GPU, otherwise that of the host. The needed bytes follow from the layout
// that inputs.choose() makes. `inputs` must list the states of the optimizer; otherwise these are not counted. The
// needed bytes include all weights of `module`, so the bytes of weights that are allocated already count as free. If a
// strategy keeps memory between steps, this memory is counted, as a multiple of the trainable weights. If the model is
// on the host, the copies of checkpoint.asynchronous are counted too, and the whole gradients that are kept between
// micro-batches, if a rank's `samples` in a step exceed one micro-batch. The bytes of all ranks that use the same
// memory are added up. Activations are not counted, and neither are the whole weights and gradients that a sharded unit
// has while it computes. If the bytes do not fit, every rank throws the same error, with exit code 71 and is_common()
// true. The error says how much is needed and available, which limit applies, and which sharding or number of ranks
// would fit.
void require_room(
    const torch::nn::Module& module, const parallel::LayoutInputs& inputs, const Config& config, std::int64_t samples,
    const Communicator& world,
    const std::function<base::AvailableMemory()>& available = [] { return base::available_memory(); });

// Makes the same check as the first require_room() for `bytes` that every rank is about to take in addition. `what`
// names these bytes in the error, and `fix` is the advice that the error gives.
void require_room(
    const char* what, std::int64_t bytes, const std::string& fix, const Communicator& world,
    const std::function<base::AvailableMemory()>& available = [] { return base::available_memory(); });

}  // namespace reigen::train
