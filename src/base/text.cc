#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace reigen::base {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  constexpr std::size_t kLongest = 128;  // for longer words edit_distance() takes noticeable time
  if (word.size() > kLongest) return best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;  // a word at this distance or more is not similar
  for (const std::string& candidate : known) {
    std::size_t distance = edit_distance(word, candidate);
    if (const auto dot = candidate.find('.'); dot != std::string::npos) {
      // The distance to only the part after the dot is increased by one, so that an equal match with the whole name
      // wins.
      distance = std::min(distance, edit_distance(word, candidate.substr(dot + 1)) + 1);
      if (word == candidate.substr(0, dot)) distance = std::min<std::size_t>(distance, 2);
      if (word.size() > dot + 2 && candidate.starts_with(word)) distance = std::min<std::size_t>(distance, 1);
    }
    if (distance >= least) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    const std::size_t first = item.find_first_not_of(' ');
    items.emplace_back(first == std::string_view::npos ? ""
                                                       : item.substr(first, item.find_last_not_of(' ') + 1 - first));
    begin = end + 1;
  }
  return items;
}

std::string counted(std::int64_t number, std::string_view what) {
  return std::to_string(number).append(" ").append(what).append(number == 1 ? "" : "s");
}

std::string quote_shell(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%") ==
                                          std::string::npos;
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string quote_toml(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\u{:04X}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string in_two_columns(const std::string& left, const std::string& right) {
  constexpr std::size_t kWidth = 79;
  constexpr std::size_t kColumn = 27;
  std::string text;
  std::string line = "  " + left;
  if (line.size() + 1 > kColumn) {
    text = line + '\n';
    line.clear();
  }
  line.resize(kColumn, ' ');
  std::size_t begin = 0;
  while (begin < right.size()) {
    const std::size_t end = std::min(right.find(' ', begin), right.size());
    if (line.size() > kColumn && line.size() + 1 + (end - begin) > kWidth) {
      text += line + '\n';
      line.assign(kColumn, ' ');
    }
    if (line.size() > kColumn) line += ' ';
    line += right.substr(begin, end - begin);
    begin = end + 1;
  }
  return text + line + '\n';
}

// After a mismatch the search returns only to the last `*` before the mismatch. The texts that earlier `*` have matched
// need not change, because the last `*` can match any text.
bool matches_pattern(std::string_view pattern, std::string_view text) {
  std::size_t at = 0;
  std::size_t in_text = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (in_text < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      star_text = in_text;
    } else if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == text[in_text])) {
      ++at;
      ++in_text;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      in_text = ++star_text;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace reigen::base
