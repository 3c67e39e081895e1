#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace reigen::apps::bench {

std::vector<double> slowest_of_ranks(const Communicator& world, const std::vector<double>& times) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<double> all(times.size() * ranks);
  world.all_gather(times.data(), all.data(), times.size(), comm::DataType::kFloat64);
  std::vector<double> slowest(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(times.size()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    slowest[i % times.size()] = std::max(slowest[i % times.size()], all[i]);
  }
  return slowest;
}

double quantile(std::vector<double> times, double fraction) {
  const double rank = std::ceil(fraction * static_cast<double>(times.size()));
  const auto index = static_cast<std::ptrdiff_t>(std::max(1.0, rank)) - 1;
  std::nth_element(times.begin(), times.begin() + index, times.end());
  return times[static_cast<std::size_t>(index)];
}

}  // namespace reigen::apps::bench
