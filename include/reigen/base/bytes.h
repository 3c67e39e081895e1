// Sizes in words: GiB for memory, GB (10^9) only for bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace reigen {

inline constexpr std::size_t kKiB = std::size_t{1} << 10;
inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr std::size_t kGiB = std::size_t{1} << 30;

// "512 B", "1.5 KiB", "64 MiB".
std::string format_bytes(std::uint64_t bytes);

// "4", "2K", "64M", "1GiB" (powers of 1024, case and a trailing "B"/"iB" do not matter). Throws InvalidArgument.
std::size_t parse_bytes(const std::string& text);

}  // namespace reigen
