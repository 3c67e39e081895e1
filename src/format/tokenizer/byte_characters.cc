#include "format/tokenizer/byte_characters.h"

#include <array>

namespace reigen::format {

namespace {

bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// The byte of each code point below 0x144, or -1.
std::array<int, 0x144> table_of_bytes() {
  std::array<int, 0x144> bytes{};
  bytes.fill(-1);
  std::size_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    bytes[stands_for_itself(byte) ? static_cast<std::size_t>(byte) : next++] = byte;
  }
  return bytes;
}

}  // namespace

std::optional<std::string> bytes_of_characters(std::string_view text) {
  static const std::array<int, 0x144> kBytes = table_of_bytes();
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); ++at) {
    auto point = static_cast<std::size_t>(static_cast<unsigned char>(text[at]));
    if (point >= 0x80) {  // all these characters have at most two bytes
      if (point < 0xC2 || point > 0xDF || at + 1 == text.size()) return std::nullopt;
      point = (point & 0x1F) << 6 | (static_cast<unsigned char>(text[++at]) & 0x3FU);
    }
    if (point >= kBytes.size() || kBytes[point] < 0) return std::nullopt;
    bytes += static_cast<char>(kBytes[point]);
  }
  return bytes;
}

}  // namespace reigen::format
