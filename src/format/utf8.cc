#include "format/utf8.h"

namespace reigen::format {

std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t bytes = byte(0) < 0x80 ? 1 : byte(0) < 0xC2 ? 0 : byte(0) < 0xE0 ? 2 : byte(0) < 0xF0 ? 3 : 4;
  if (bytes == 0 || bytes > text.size() || byte(0) > 0xF4) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (byte(0) == 0xE0 && byte(1) < 0xA0) return 0;  // a longer form than needed
  if (byte(0) == 0xED && byte(1) > 0x9F) return 0;  // half of a surrogate pair
  if (byte(0) == 0xF0 && byte(1) < 0x90) return 0;
  if (byte(0) == 0xF4 && byte(1) > 0x8F) return 0;  // beyond U+10FFFF
  return bytes;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string_view without_cut_character(std::string_view text) {
  for (std::size_t behind = 1; behind <= 3 && behind <= text.size(); ++behind) {
    const auto byte = static_cast<unsigned char>(text[text.size() - behind]);
    if (byte < 0x80) return text;
    if (byte < 0xC0) continue;
    const std::size_t bytes = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    return bytes > behind ? text.substr(0, text.size() - behind) : text;
  }
  return text;
}

}  // namespace reigen::format
