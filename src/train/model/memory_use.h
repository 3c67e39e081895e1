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

// Returns a text such as "parameters 4.6 MiB, gradients ...". For each kind of memory it has the value of the rank that
// has the most.
std::string to_text(const MemoryReport& report);

}  // namespace reigen::train
