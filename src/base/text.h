// Text that people and programs write: numbers in it, the known word that was meant, a number of things, a word for a
// shell.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace reigen::base {

// The number that the whole text is; nothing where it is empty, has anything before or after its digits (blanks too),
// or is out of Number's range. "inf" and "nan" are floating-point numbers.
template <typename Number>
std::optional<Number> parse(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// Levenshtein's: insertions, deletions and replacements that turn one word into the other.
std::size_t edit_distance(const std::string& a, const std::string& b);

// The known word that `word` most probably means, empty if none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

// "1 step", "2 steps".
std::string counted(std::int64_t number, std::string_view what);

// The word as a shell takes it: in quotes where it needs some.
std::string quote_shell(const std::string& word);

}  // namespace reigen::base
