// Summarises the times of many iterations on many ranks. Thread rule: the communicator's.
#pragma once

#include <vector>

#include "reigen/comm/communicator.h"

namespace reigen::apps::bench {

// times[i] = the largest of all ranks' times[i]. Collective; every rank must give equally many times.
std::vector<double> slowest_of_ranks(const Communicator& world, const std::vector<double>& times);

// The nearest-rank quantile of `times`, which must not be empty. Fraction 0 gives the smallest time.
double quantile(std::vector<double> times, double fraction);

}  // namespace reigen::apps::bench
