// The tag of a call (CallOptions::tag) in a fixed number of bytes. A Tag is a member of the pages of shared memory
// through which ranks communicate, of the headers of messages, and of signatures.
// Thread rule: values, freely copied between threads.
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

  // Writes only the bytes of the text and its terminating zero. In shared memory that other ranks read, each written
  // cache line costs time.
  void assign(std::string_view text) {
    const std::size_t length = std::min(text.size(), kLongestTag);
    std::memcpy(characters_.data(), text.data(), length);
    characters_[length] = '\0';
  }
  // Makes the tag fit into one line of text.
  void replace_line_breaks() { std::replace(characters_.begin(), characters_.end(), '\n', ' '); }
  bool empty() const { return characters_[0] == '\0'; }
  // Returns at most kLongestTag characters, even if another rank wrote the tag without a terminating zero.
  std::string_view text() const { return {characters_.data(), ::strnlen(characters_.data(), kLongestTag)}; }

  friend bool operator==(const Tag& a, const Tag& b) {
    return std::strncmp(a.characters_.data(), b.characters_.data(), kLongestTag) == 0;
  }

 private:
  std::array<char, kLongestTag + 1> characters_ = {};
};

static_assert(sizeof(Tag) == 48, "a part of what travels between machines");

}  // namespace reigen::comm
