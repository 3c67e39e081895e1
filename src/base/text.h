// Helpers for text that people and programs write: parsing numbers, finding the known word that was meant, counting
// things, quoting for a shell.
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

// The number that the whole text represents. Nothing if the text is empty, has other characters before or after the
// number (blanks too), or is out of Number's range. "inf" and "nan" are floating-point numbers.
template <typename Number>
std::optional<Number> parse(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

// The Levenshtein distance: the least number of insertions, deletions and replacements that turn one word into the
// other.
std::size_t edit_distance(const std::string& a, const std::string& b);

// The known word that `word` most probably means; empty if no known word is similar. A known word "train.epochs" is
// also found for a `word` that is like its second part, "epochs", or its beginning, "train.ep".
std::string nearest(const std::string& word, const std::vector<std::string>& known);

// Splits a list at its separators, and removes the blanks around each item. An item may be empty; an empty text has no
// items.
std::vector<std::string> split(std::string_view text, char separator);

// Whether the whole text matches the pattern, in which `*` matches any text and `?` any character.
bool matches_pattern(std::string_view pattern, std::string_view text);

// A number with its noun in singular or plural: "1 step", "2 steps".
std::string counted(std::int64_t number, std::string_view what);

// The word as a shell command line needs it: in quotes if it has characters that a shell would interpret.
std::string quote_shell(const std::string& word);

// The text as TOML writes it, in double quotes.
std::string quote_toml(const std::string& text);

// Two columns of a --help for a terminal of 80 columns. The right text is broken at blanks; a long left text gets a
// line of its own. Each line ends with a newline.
std::string in_two_columns(const std::string& left, const std::string& right);

}  // namespace reigen::base
