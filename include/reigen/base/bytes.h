// Sizes in bytes as text. GiB (2^30) is used for memory, GB (10^9) only for bandwidth.
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

// The number of bytes that a text such as "4", "2K", "64M" or "1GiB" stands for. The units are powers of 1024; case and
// a trailing "B" or "iB" do not matter. Throws InvalidArgument for other text.
std::size_t parse_bytes(const std::string& text);

}  // namespace reigen
