// Checks whether the data that a run holds between steps fit into memory. The check comes before the memory is taken,
// so the answer is an error that says what would fit, instead of a process that the kernel kills.
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

// Collective. A model on a GPU is checked against the free memory that `available` tells of its GPU, other models
// against that of the host. The needed bytes follow from the layout that `inputs` choose. `inputs` must list the states
// of the optimizer, or these are not counted. The needed bytes include weights of `module` that are allocated already,
// so the bytes of these weights count as free. The copies of checkpoint.asynchronous are counted too if they are on
// this device. So are the whole gradients that are kept between micro-batches, if a rank's `samples` in a step exceed
// one micro-batch. Ranks that draw from the same memory of a machine are added up. Not counted are activations, and the
// whole weights and gradients that a sharded unit has while it computes. If the bytes do not fit, every rank throws the
// same error, with exit code 71 and is_common() true. The error says how much is needed and available, which limit
// applies, and which sharding or number of ranks would fit.
void require_room(
    const torch::nn::Module& module, const parallel::LayoutInputs& inputs, const Config& config, std::int64_t samples,
    const Communicator& world,
    const std::function<base::AvailableMemory()>& available = [] { return base::available_memory(); });

// The error of a rank whose GPU had no memory left in this step: what the run holds by the layout, and settings with
// which a step takes less. samples: of this rank in a step. `text`: LibTorch's message.
Error out_of_memory(const std::string& text, std::int64_t step, const MemoryUse& held, const Config& config,
                    std::int64_t samples);

// The same check for `bytes` that every rank is about to take in addition. `fix`: the advice that the error gives.
void require_room(
    const char* what, std::int64_t bytes, const std::string& fix, const Communicator& world,
    const std::function<base::AvailableMemory()>& available = [] { return base::available_memory(); });

}  // namespace reigen::train
