// Where a rank's memory is: what a run tells at its end, counted, beside what the layout says (reigen/layout/layout.h).
// Thread rule: no shared state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/layout/layout.h"
#include "reigen/parallel/data_parallel.h"

namespace reigen::train {

// Bytes of one rank.
struct MemoryUse {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;  // with the spare blocks in which backward makes them
  std::int64_t optimizer = 0;  // with the average of the weights
  std::int64_t buffers = 0;
  std::int64_t activations = 0;  // what a forward leaves for its backward
  std::int64_t step = 0;         // the most that a forward and backward have made at once, activations among it
};

struct MemoryReport {
  std::vector<MemoryUse> ranks = {};
  std::vector<MemoryUse> formulas = {};  // parameters, gradients and optimizer of each rank, as the layout says
};

// What the layout says of one rank.
MemoryUse formula(const layout::Layout& layout, const layout::Coordinates& at);

// What stays between steps.
MemoryUse count_memory(const torch::nn::Module& module, const parallel::DataParallelBase& parallel);

// Of all ranks. Collective.
MemoryReport gather_memory(const MemoryUse& own, const MemoryUse& formula, const Communicator& world);

// VmHWM of this process. 0 where the kernel does not say.
std::int64_t peak_memory_bytes();

// "parameters 4.6 MiB, gradients ...", of the rank with the most of each.
std::string to_text(const MemoryReport& report);

}  // namespace reigen::train
