// Encodes texts with format::Tokenizer, for scripts/compare/tokenizers:
//   tokenize FILE PATTERN tokens|text <texts >results
// A text is its number of bytes (32 bits) and its bytes. A result is the number of ids, the ids (32 bits each), the
// number of bytes of the decoded text and its bytes.
#include <cstdint>
#include <cstring>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include "reigen/base/error.h"
#include "reigen/format/tokenizer.h"

int main(int count, char** arguments) {
  using reigen::format::SpecialTokens;
  using reigen::format::Tokenizer;
  if (count != 4) {
    std::cerr << "tokenize FILE PATTERN tokens|text <texts >results\n";
    return 2;
  }
  try {
    const auto tokenizer = Tokenizer::read(arguments[1], {.pattern = reigen::format::word_pattern_of(arguments[2])});
    const auto special = std::string_view(arguments[3]) == "text" ? SpecialTokens::kText : SpecialTokens::kTokens;
    const std::string input{std::istreambuf_iterator<char>(std::cin), {}};
    const auto write_number = [](std::size_t value) {
      const auto number = static_cast<std::uint32_t>(value);
      std::cout.write(reinterpret_cast<const char*>(&number), sizeof number);
    };
    for (std::size_t at = 0; at + 4 <= input.size();) {
      std::uint32_t size = 0;
      std::memcpy(&size, input.data() + at, sizeof size);
      at += sizeof size;
      const auto ids = tokenizer.encode(std::string_view(input).substr(at, size), special);
      at += size;
      const std::string text = tokenizer.decode(ids);
      write_number(ids.size());
      std::cout.write(reinterpret_cast<const char*>(ids.data()),
                      static_cast<std::streamsize>(ids.size() * sizeof(std::int32_t)));
      write_number(text.size());
      std::cout.write(text.data(), static_cast<std::streamsize>(text.size()));
    }
  } catch (const reigen::Error& error) {
    std::cerr << error.what() << "\n";
    return static_cast<int>(error.exit_code());
  }
  return 0;
}
