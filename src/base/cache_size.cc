#include "base/cache_size.h"

#include <fmt/format.h>

#include <fstream>

#include "reigen/base/bytes.h"

namespace reigen::base {

std::size_t last_level_cache_bytes(const std::string& root) {
  constexpr int kCaches = 16;  // more than any processor lists
  std::size_t bytes = 0;
  int highest = 0;
  for (int i = 0; i < kCaches; ++i) {
    const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu0/cache/index{}/", root, i);
    std::ifstream level_file(folder + "level");
    std::ifstream size_file(folder + "size");
    int level = 0;
    std::size_t size = 0;
    char unit = 0;
    if (!(level_file >> level) || !(size_file >> size >> unit) || level <= highest) continue;
    const std::size_t factor = unit == 'K' ? kKiB : unit == 'M' ? kMiB : unit == 'G' ? kGiB : 0;
    if (size == 0 || factor == 0) continue;
    highest = level;
    bytes = size * factor;
  }
  return bytes > 0 ? bytes : 32 * kMiB;
}

}  // namespace reigen::base
