#include "bench/statistics.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace reigen::apps::bench {

std::vector<double> slowest_of_ranks(const Communicator& world, const std::vector<double>& times) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const std::size_t bytes = times.size() * sizeof(double);
  std::vector<double> all(times.size() * ranks);
  // The group's own memory: of the host's some backends carry little.
  const std::shared_ptr<void> mine = world.allocate(bytes);
  const std::shared_ptr<void> gathered = world.allocate(bytes * ranks);
  world.copy_in(mine.get(), times.data(), bytes);
  world.all_gather(mine.get(), gathered.get(), times.size(), comm::DataType::kFloat64);
  world.copy_out(all.data(), gathered.get(), bytes * ranks);
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
