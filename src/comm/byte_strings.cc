#include "reigen/comm/byte_strings.h"

#include <cstdint>
#include <numeric>

namespace reigen::comm {

std::string broadcast_bytes(std::string bytes, int root, Communicator world, const std::string& tag) {
  std::uint64_t size = bytes.size();
  world.broadcast(&size, sizeof(size), DataType::kUint8, root, {.tag = "size of " + tag});
  bytes.resize(size);
  world.broadcast(bytes.data(), size, DataType::kUint8, root, {.tag = tag});
  return bytes;
}

std::vector<std::string> all_gather_bytes(const std::string& bytes, Communicator world, const std::string& tag) {
  const std::uint64_t size = bytes.size();
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::size_t> counts(ranks);
  world.all_gather(&size, counts.data(), sizeof(size), DataType::kUint8, {.tag = "sizes of " + tag});
  std::string all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), '\0');
  world.all_gather_v(bytes.data(), all.data(), counts, DataType::kUint8, {.tag = tag});
  std::vector<std::string> result;
  std::size_t at = 0;
  for (const std::size_t count : counts) {
    result.push_back(all.substr(at, count));
    at += count;
  }
  return result;
}

}  // namespace reigen::comm
