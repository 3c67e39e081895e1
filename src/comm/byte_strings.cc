#include "reigen/comm/byte_strings.h"

#include <cstdint>

namespace reigen::comm {

std::string broadcast_bytes(std::string bytes, int root, Communicator world, const std::string& tag) {
  std::uint64_t size = bytes.size();
  world.broadcast(&size, sizeof(size), DataType::kUint8, root, {.tag = "size of " + tag});
  bytes.resize(size);
  world.broadcast(bytes.data(), bytes.size(), DataType::kUint8, root, {.tag = tag});
  return bytes;
}

std::vector<std::string> all_gather_bytes(const std::string& bytes, Communicator world, const std::string& tag) {
  const std::uint64_t size = bytes.size();
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world.size()));
  world.all_gather(&size, sizes.data(), sizeof(size), DataType::kUint8, {.tag = "sizes of " + tag});
  std::size_t sum = 0;
  for (const std::uint64_t one : sizes) sum += one;
  std::string all(sum, '\0');
  world.all_gather_v(bytes.data(), all.data(), std::vector<std::size_t>(sizes.begin(), sizes.end()), DataType::kUint8,
                     {.tag = tag});
  std::vector<std::string> result;
  std::size_t begin = 0;
  for (const std::uint64_t one : sizes) {
    result.push_back(all.substr(begin, one));
    begin += one;
  }
  return result;
}

}  // namespace reigen::comm
