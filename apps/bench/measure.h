// Measures one size on all ranks. Thread rule: the communicator's; every rank calls with the same problems.
#pragma once

#include <memory>

#include "bench/report.h"

namespace reigen::apps::bench {

// Memory for the largest of the problems, of the communicator or (--foreign) of the process; all sizes use its front.
std::shared_ptr<std::byte> allocate_for(Communicator& world, const std::vector<Problem>& problems,
                                        const BenchOptions& options);

// Collective. The same row on every rank.
Row measure(Communicator& world, const Problem& problem, const BenchOptions& options, std::byte* memory);

}  // namespace reigen::apps::bench
