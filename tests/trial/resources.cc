#include "trial/resources.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>

namespace reigen::trial {

namespace {

std::size_t entries(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

Resources most(const std::vector<Resources>& looks, std::size_t begin, std::size_t end) {
  Resources result;
  for (std::size_t i = begin; i < end; ++i) {
    result.descriptors = std::max(result.descriptors, looks[i].descriptors);
    result.threads = std::max(result.threads, looks[i].threads);
    result.mappings = std::max(result.mappings, looks[i].mappings);
    result.resident_kib = std::max(result.resident_kib, looks[i].resident_kib);
  }
  return result;
}

}  // namespace

Resources read_resources() {
  // A read of the descriptors takes a descriptor itself, so threads read one after the other.
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Resources found;
  found.descriptors = entries("/proc/self/fd");
  found.threads = entries("/proc/self/task");
  std::string line;
  for (std::ifstream maps("/proc/self/maps"); std::getline(maps, line);) ++found.mappings;
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  found.resident_kib = pages * 4;
  return found;
}

std::string to_json(const Resources& r) {
  return fmt::format("{{\"descriptors\": {}, \"threads\": {}, \"mappings\": {}, \"resident_kib\": {}}}", r.descriptors,
                     r.threads, r.mappings, r.resident_kib);
}

std::optional<std::string> find_leak(const std::vector<Resources>& looks, const Resources& slack) {
  const std::size_t half = looks.size() / 2;
  if (half == 0) return std::nullopt;
  const Resources before = most(looks, 0, half);
  const Resources after = most(looks, half, looks.size());
  if (after.descriptors <= before.descriptors + slack.descriptors && after.threads <= before.threads &&
      after.mappings <= before.mappings + slack.mappings &&
      after.resident_kib <= before.resident_kib + slack.resident_kib) {
    return std::nullopt;
  }
  return fmt::format("more is held in the second half: {} after {}", to_json(after), to_json(before));
}

}  // namespace reigen::trial
