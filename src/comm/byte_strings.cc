#include "reigen/comm/byte_strings.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace reigen::comm {

namespace {

// Bytes of each of `texts` texts that one call carries: all, or, over a backend for a device, what fits into the 64 KiB
// that it takes from the host's memory (nccl/group.h).
std::size_t piece_of(const Communicator& world, std::size_t whole, std::size_t texts) {
  constexpr std::size_t kMost = std::size_t{64} << 10;
  return std::max<std::size_t>(world.memory_is_of_host() ? whole : kMost / texts, 1);
}

}  // namespace

std::string broadcast_bytes(std::string bytes, int root, Communicator world, const std::string& tag) {
  std::uint64_t size = bytes.size();
  world.broadcast(&size, sizeof(size), DataType::kUint8, root, {.tag = "size of " + tag});
  bytes.resize(size);
  const std::size_t piece = piece_of(world, size, 1);
  std::size_t begin = 0;
  do {  // also of nothing: one call of a root, as of any other text
    world.broadcast(bytes.data() + begin, std::min(piece, size - begin), DataType::kUint8, root, {.tag = tag});
    begin += piece;
  } while (begin < size);
  return bytes;
}

std::vector<std::string> all_gather_bytes(const std::string& bytes, Communicator world, const std::string& tag) {
  const std::uint64_t size = bytes.size();
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::uint64_t> sizes(ranks);
  world.all_gather(&size, sizes.data(), sizeof(size), DataType::kUint8, {.tag = "sizes of " + tag});
  const std::uint64_t largest = *std::max_element(sizes.begin(), sizes.end());
  const std::size_t piece = piece_of(world, largest, ranks);
  std::vector<std::string> result(ranks);
  std::size_t begin = 0;
  do {
    std::vector<std::size_t> counts;
    for (const std::uint64_t one : sizes) counts.push_back(begin < one ? std::min(piece, one - begin) : 0);
    std::string all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), '\0');
    world.all_gather_v(bytes.data() + std::min(begin, bytes.size()), all.data(), counts, DataType::kUint8,
                       {.tag = tag});
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < ranks; at += counts[rank++]) result[rank].append(all, at, counts[rank]);
    begin += piece;
  } while (begin < largest);
  return result;
}

}  // namespace reigen::comm
