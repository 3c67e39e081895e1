// What this process holds at the moment. Thread rule: one thread looks at a time, the others should be at rest.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace reigen::trial {

struct Resources {
  std::size_t descriptors = 0;
  std::size_t threads = 0;
  std::size_t mappings = 0;
  std::size_t resident_kib = 0;
};

Resources read_resources();
std::string to_json(const Resources& resources);

// The first half of the looks shows how much is needed; what the second half holds above that and `slack` is a leak: a
// random mix of sizes may come to need another piece of shared memory, and the C library's allocator has its moods.
std::optional<std::string> find_leak(const std::vector<Resources>& looks, const Resources& slack);

// A sanitizer maps and keeps memory of its own.
inline constexpr std::size_t kOfSanitizer = REIGEN_TRIAL_SANITIZED ? std::size_t{1} << 40 : 0;
inline constexpr Resources kSlackOfCycles{0, 0, 8 + kOfSanitizer, 16 * 1024 + kOfSanitizer};
inline constexpr Resources kSlackOfOperations{16, 0, 40 + kOfSanitizer, 64 * 1024 + kOfSanitizer};

}  // namespace reigen::trial
