#include "train/run/printable.h"

#include "format/utf8.h"

namespace reigen::train {

namespace {

// Control characters of ASCII and of Latin-1 (U+0080 to U+009F); some terminals execute both.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return (first < 0x20 && first != '\n') || first == 0x7f;
  return character.size() == 2 && first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace

std::string PrintableText::take(std::string_view bytes) {
  waiting_ += bytes;
  std::string text;
  std::string_view rest = waiting_;
  while (!rest.empty()) {
    const std::size_t size = format::character_bytes(rest);
    // The beginning of a character is what without_cut_character() cuts off.
    if (size == 0 && rest.size() < 4 && format::without_cut_character(rest).empty()) break;
    if (size == 0 || is_control(rest.substr(0, size)))
      text += '?';
    else
      text += rest.substr(0, size);
    rest.remove_prefix(size == 0 ? 1 : size);
  }
  waiting_ = std::string(rest);
  return text;
}

std::string PrintableText::finish() {
  const std::string text(waiting_.size(), '?');
  waiting_.clear();
  return text;
}

std::string printable(std::string_view text) {
  PrintableText printed;
  const std::string whole = printed.take(text);
  return whole + printed.finish();
}

}  // namespace reigen::train
