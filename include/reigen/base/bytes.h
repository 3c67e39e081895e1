// Sizes in bytes as text. GiB (2^30) is used for memory, GB (10^9) only for bandwidth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace reigen {

inline constexpr std::size_t kKiB = std::size_t{1} << 10;
inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr std::size_t kGiB = std::size_t{1} << 30;

// Returns the size as text, for example "512 B", "1.5 KiB" or "64 MiB".
std::string format_bytes(std::uint64_t bytes);

// Returns the number of bytes that a text such as "4", "2K", "64M" or "1GiB" stands for. The units K, M and G are 2^10,
// 2^20 and 2^30. The letters may be lower case, and a "B" or "iB" may follow the unit. Throws InvalidArgument for other
// text.
std::size_t parse_bytes(const std::string& text);

}  // namespace reigen
