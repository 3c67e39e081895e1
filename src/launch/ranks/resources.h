// What this machine offers a job: memory, processes, descriptors. Cores: base/cores.h.
#pragma once

#include <sys/resource.h>

#include <cstddef>

#include "base/machine/available_memory.h"

namespace reigen::launch {

using base::available_memory;
using base::AvailableMemory;

// Throws IoError (71), with the arithmetic, when `ranks` times `memory_per_rank` do not fit.
void check_memory(int ranks, std::size_t memory_per_rank, const AvailableMemory& available);

// Throws IoError (71) when the limits of this process do not allow `ranks` processes and the pipes to them. Raises the
// soft limit of descriptors when that is enough; gives the limit as it was, for the ranks.
rlimit check_limits(int ranks);

}  // namespace reigen::launch
