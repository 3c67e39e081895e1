// How a rank's memory is used: the bytes that a run measures and reports at its end, next to the bytes that the
// layout predicts (reigen/layout/layout.h).
// Thread rule: no shared state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/layout/layout.h"
#include "reigen/parallel/data_parallel.h"

namespace reigen::train {

// The bytes of one rank.
struct MemoryUse {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;  // including the spare blocks in which backward writes gradients
  std::int64_t optimizer = 0;  // including the average of the weights
  std::int64_t buffers = 0;
  std::int64_t activations = 0;  // what a forward keeps for its backward
  std::int64_t step = 0;         // peak during a forward and backward, including activations
  // On a GPU only. Ranks that are threads of one process share LibTorch's allocator and each tell all of it.
  std::int64_t batches = 0;       // the batch of a step, and those that are copied in advance
  std::int64_t in_steps = 0;      // the most that LibTorch's allocator had given out in the steps that were measured
  std::int64_t allocated = 0;     // the same of the whole run, with its evaluations
  std::int64_t reserved = 0;      // the most that it had taken from the driver
  std::int64_t fragmented = 0;    // free pieces between tensors at the end
  std::int64_t of_the_group = 0;  // weights and gradients that lie in memory of the group, not of LibTorch's allocator
};

struct MemoryReport {
  std::vector<MemoryUse> ranks = {};
  std::vector<MemoryUse> formulas = {};  // what the layout predicts for each rank: parameters, gradients, optimizer
};

// The bytes that the layout predicts for the rank at these coordinates.
MemoryUse formula(const layout::Layout& layout, const layout::Coordinates& at);

// Counts the bytes that are held between steps.
MemoryUse count_memory(const torch::nn::Module& module, const parallel::DataParallelBase& parallel);

// Collective. Returns the values of all ranks on every rank.
MemoryReport gather_memory(const MemoryUse& own, const MemoryUse& formula, const Communicator& world);

// The peak resident memory of this process (VmHWM), or 0 if the kernel does not report it.
std::int64_t peak_memory_bytes();

// Whether LibTorch's allocator of a GPU told what it had given out.
bool is_on_gpu(const MemoryReport& report);

// Returns a text such as "parameters 4.6 MiB, gradients ...". For each kind of memory it has the value of the rank that
// has the most.
std::string to_text(const MemoryReport& report);

}  // namespace reigen::train
