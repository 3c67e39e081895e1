// The resources that this process holds now. Thread rule: one thread reads them at a time, the others should be idle.
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

// The first half of `looks` shows how much is needed. If the second half holds more than that and `slack`, there is a
// leak. The slack is for random sizes that need another piece of shared memory, and for the C library's allocator.
std::optional<std::string> find_leak(const std::vector<Resources>& looks, const Resources& slack);

// A sanitizer maps and keeps memory of its own.
inline constexpr std::size_t kOfSanitizer = REIGEN_TRIAL_SANITIZED ? std::size_t{1} << 40 : 0;
inline constexpr Resources kSlackOfCycles{0, 0, 8 + kOfSanitizer, 16 * 1024 + kOfSanitizer};
inline constexpr Resources kSlackOfOperations{16, 0, 40 + kOfSanitizer, 64 * 1024 + kOfSanitizer};

}  // namespace reigen::trial
