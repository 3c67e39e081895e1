// The lower bound of an operation's time on this machine: plain copies and sums over private memory, without any
// synchronisation inside. Thread rule: one caller per rank; every rank calls with the same problem.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "bench/operation.h"

namespace reigen::apps::bench {

// The time of one run of the function, in seconds. All ranks run it at the same time, in batches long enough for the
// clock. The time of a batch is its time on the slowest rank. The result is the median over the batches.
double time_together(const Communicator& world, const std::function<void(std::size_t iteration)>& function);

// Seconds that the operation's least_traffic() takes on this machine: the smaller time of
//   a copy      each rank copies (read + written) / 2 bytes, and
//   a sum       (only reductions) each rank reduces its share of P inputs in one pass and writes it to every output. In
//               place the outputs are the inputs; otherwise the faster of normal and non-temporal stores counts.
// For the memory of a device the result is the time of the copy, at the speed of a long copy. The result is empty when
// the operation moves no data. If `cold`, copies and sums use so many buffers in turn that no cache can hold them. The
// measurement of the operation does the same.
std::optional<double> measure_bound(const Communicator& world, const Problem& problem, bool cold);

}  // namespace reigen::apps::bench
