// Measures one size on all ranks. Thread rule: the communicator's; every rank calls with the same problems.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/report.h"

namespace reigen::apps::bench {

// Memory for the largest of the problems; smaller sizes use its beginning. It is memory of the communicator, or with
// --foreign of the process. The communicator's memory may be in a device.
std::shared_ptr<std::byte> allocate_for(const Communicator& world, const std::vector<Problem>& problems,
                                        const BenchOptions& options);

// The number of buffers of this size that are used in turn: as in memory.h, but at least one for each call in flight.
std::size_t slots_of(std::size_t bytes, const BenchOptions& options);

// How long calls of one size take.
struct Times {
  std::vector<double> slowest;        // seconds of each iteration on its slowest rank
  std::string algorithm;              // the algorithm that was taken; "message" for send_recv
  std::optional<std::size_t> wrong;   // wrong elements on all ranks; empty if not checked
  std::optional<double> waiting_cpu;  // as in Row
};

// Collective. Every rank gets the same times and the same algorithm.
Times time_size(const Communicator& world, const Problem& problem, const BenchOptions& options, std::byte* memory);

// Collective. Every rank gets the same row.
Row measure(const Communicator& world, const Problem& problem, const BenchOptions& options, std::byte* memory);

}  // namespace reigen::apps::bench
