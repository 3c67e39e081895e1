// Finds the added tokens of a tokenizer, such as <|endoftext|>, in a text: from the left, and of several that begin at
// one place the longest. Thread rule: an AddedTokens does not change.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "format/tokenizer/rules.h"

namespace reigen::format {

class AddedTokens {
 public:
  // `tokens[i]` is found as `contents[i]`.
  AddedTokens(std::vector<const AddedToken*> tokens, const std::vector<std::string>& contents);

  using Text = std::function<void(std::string_view text, std::size_t at)>;  // a text, and its place in the whole text
  using Token = std::function<void(std::int32_t id)>;

  // Divides `text` into tokens and the texts between them, in their order. No text is empty. A special token is passed
  // over, as if it were text, if `with_special` is false.
  void divide(std::string_view text, bool with_special, const Text& on_text, const Token& on_token) const;

 private:
  struct Node {
    std::map<char, std::size_t> next = {};
    std::int64_t token = -1;
  };
  // The token that begins at `at`, and its end; null if there is none.
  std::pair<const AddedToken*, std::size_t> longest(std::string_view text, std::size_t at) const;

  std::vector<const AddedToken*> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> begins_{};
};

}  // namespace reigen::format
