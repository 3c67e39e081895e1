// Measures one size on all ranks. Thread rule: the communicator's; every rank calls with the same problems.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/report.h"

namespace reigen::apps::bench {

// Memory for the largest of the problems, of the communicator or (--foreign) of the process; all sizes use its front.
// The communicator's may be a device's.
std::shared_ptr<std::byte> allocate_for(const Communicator& world, const std::vector<Problem>& problems,
                                        const BenchOptions& options);

// How many buffers of this size are used in turn: as memory.h has it, and one for each call under way at once.
std::size_t slots_of(std::size_t bytes, const BenchOptions& options);

// How long calls of one size take.
struct Times {
  std::vector<double> slowest;        // seconds of each iteration on its slowest rank
  std::string algorithm;              // that was taken; a message has none: "message"
  std::optional<std::size_t> wrong;   // elements of all ranks; empty: not checked
  std::optional<double> waiting_cpu;  // of a core, see Row
};

// Collective. The same times and algorithm on every rank.
Times time_size(const Communicator& world, const Problem& problem, const BenchOptions& options, std::byte* memory);

// Collective. The same row on every rank.
Row measure(const Communicator& world, const Problem& problem, const BenchOptions& options, std::byte* memory);

}  // namespace reigen::apps::bench
