#include "reigen/base/bytes.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <limits>

#include "base/check.h"

namespace reigen {

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kNames.size(); ++unit) value /= 1024;
  return value >= 100 ? fmt::format("{:.0f} {}", value, kNames[unit]) : fmt::format("{:.3g} {}", value, kNames[unit]);
}

std::size_t parse_bytes(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit;
  for (const char* c = end; c != text.data() + text.size(); ++c)
    unit += static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
  int shift = -1;
  if (unit.empty() || unit == "B") shift = 0;
  if (unit == "K" || unit == "KB" || unit == "KIB") shift = 10;
  if (unit == "M" || unit == "MB" || unit == "MIB") shift = 20;
  if (unit == "G" || unit == "GB" || unit == "GIB") shift = 30;
  if (error != std::errc{} || shift < 0 || number > (std::numeric_limits<std::uint64_t>::max() >> shift)) {
    throw InvalidArgument(
        Report{.what = "not a size in bytes", .got = "'" + text + "'", .expected = "4, 2K, 64M or 1G", .fix = ""});
  }
  return static_cast<std::size_t>(number << shift);
}

}  // namespace reigen
