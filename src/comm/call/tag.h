// The words of a call (CallOptions::tag) in a fixed number of bytes: in pages that ranks share, in what travels before
// data, and in what is compared.
// Thread rule: a value.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "reigen/comm/options.h"

namespace reigen::comm {

class Tag {
 public:
  Tag() = default;
  explicit Tag(std::string_view text) { assign(text); }

  // Writes no more bytes than the text and its end need: in a page that others read each cache line costs.
  void assign(std::string_view text) {
    const std::size_t length = std::min(text.size(), kLongestTag);
    std::memcpy(characters_.data(), text.data(), length);
    characters_[length] = '\0';
  }
  // A tag as part of a line.
  void replace_line_breaks() { std::replace(characters_.begin(), characters_.end(), '\n', ' '); }
  bool empty() const { return characters_[0] == '\0'; }
  // At most kLongestTag characters, also where another rank wrote the tag without an end.
  std::string_view text() const { return {characters_.data(), ::strnlen(characters_.data(), kLongestTag)}; }

  friend bool operator==(const Tag& a, const Tag& b) {
    return std::strncmp(a.characters_.data(), b.characters_.data(), kLongestTag) == 0;
  }

 private:
  std::array<char, kLongestTag + 1> characters_ = {};
};

static_assert(sizeof(Tag) == 48, "a part of what travels between machines");

}  // namespace reigen::comm
