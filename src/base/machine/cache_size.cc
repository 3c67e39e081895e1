#include "base/machine/cache_size.h"

#include <fmt/format.h>

#include <fstream>
#include <set>

#include "reigen/base/bytes.h"

namespace reigen::base {

namespace {

struct Cache {
  int level = 0;
  std::size_t bytes = 0;
  std::string processors = {};  // the processors that share the cache
};

Cache last_cache_of(const std::string& processor) {
  constexpr int kCaches = 16;  // more caches than any processor has
  Cache last;
  for (int i = 0; i < kCaches; ++i) {
    const std::string folder = fmt::format("{}/cache/index{}/", processor, i);
    std::ifstream level_file(folder + "level");
    std::ifstream size_file(folder + "size");
    std::ifstream processors_file(folder + "shared_cpu_list");
    int level = 0;
    std::size_t size = 0;
    char unit = 0;
    if (!(level_file >> level) || !(size_file >> size >> unit) || level <= last.level) continue;
    const std::size_t factor = unit == 'K' ? kKiB : unit == 'M' ? kMiB : unit == 'G' ? kGiB : 0;
    if (size == 0 || factor == 0) continue;
    last = {level, size * factor};
    processors_file >> last.processors;
  }
  return last;
}

}  // namespace

std::size_t last_level_cache_bytes(const std::string& root) {
  constexpr int kMostProcessors = 4096;
  std::size_t bytes = 0;
  std::set<std::string> seen;
  for (int i = 0; i < kMostProcessors; ++i) {
    const Cache cache = last_cache_of(fmt::format("{}/sys/devices/system/cpu/cpu{}", root, i));
    if (cache.bytes == 0) break;
    if (seen.insert(cache.processors).second) bytes += cache.bytes;
  }
  return bytes > 0 ? bytes : 32 * kMiB;
}

}  // namespace reigen::base
