#include "train/watch/clock_offset.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/check.h"
#include "base/machine/host_name.h"

namespace reigen::train {

namespace {

constexpr int kTrips = 32;

}  // namespace

std::int64_t offset_of(const std::vector<RoundTrip>& trips) {
  REIGEN_ASSERT(!trips.empty(), "no round trip");
  const auto shortest = std::min_element(trips.begin(), trips.end(), [](const RoundTrip& a, const RoundTrip& b) {
    return a.returned - a.left < b.returned - b.left;
  });
  return shortest->answered - shortest->left - (shortest->returned - shortest->left) / 2;
}

std::int64_t offset_to_rank_0(Communicator world, const std::vector<std::string>& machines, const Clock& clock) {
  std::int64_t offset = 0;
  for (int rank = 1; rank < world.size(); ++rank) {
    if (machines[static_cast<std::size_t>(rank)] == machines[0]) continue;
    std::vector<RoundTrip> trips;
    for (int trip = 0; trip < kTrips; ++trip) {
      std::int64_t answer = 0;
      if (world.rank() == rank) {
        RoundTrip one{.left = clock()};
        world.send(&one.left, 1, DataType::kInt64, 0, {.tag = "time?"});
        world.recv(&answer, 1, DataType::kInt64, 0, {.tag = "time"});
        one.answered = answer;
        one.returned = clock();
        trips.push_back(one);
      } else if (world.rank() == 0) {
        world.recv(&answer, 1, DataType::kInt64, rank, {.tag = "time?"});
        answer = clock();
        world.send(&answer, 1, DataType::kInt64, rank, {.tag = "time"});
      }
    }
    if (world.rank() == rank) offset = offset_of(trips);
  }
  return offset;
}

std::string machine_word() {
  std::string word;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id") >> std::ws, word);
  return word.empty() ? base::host_name() : word;
}

}  // namespace reigen::train
