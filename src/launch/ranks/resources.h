// Checks that this machine has enough memory, processes and descriptors for a job. For cores see base/machine/cores.h.
#pragma once

#include <sys/resource.h>

#include <cstddef>

#include "base/machine/available_memory.h"

namespace reigen::launch {

using base::available_memory;
using base::AvailableMemory;

// Throws IoError with exit code 71 if `ranks` times `memory_per_rank` is more than is available. The error shows the
// numbers.
void check_memory(int ranks, std::size_t memory_per_rank, const AvailableMemory& available);

// Throws IoError with exit code 71 when the limits of this process do not allow `ranks` processes and the pipes to
// them. Raises the soft limit of descriptors where the hard limit allows it. Returns the previous limit, which the
// ranks get.
rlimit check_limits(int ranks);

}  // namespace reigen::launch
