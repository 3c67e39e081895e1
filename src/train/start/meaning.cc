#include "train/start/meaning.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "reigen/checkpoint/manifest.h"

namespace reigen::train {

namespace {

using Values = std::vector<std::string>;

bool is_utf8(const std::string& bytes) {
  using nlohmann::json;
  const json text = bytes;
  return text.dump(-1, ' ', false, json::error_handler_t::ignore) ==
         text.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Returns valid UTF-8. If `bytes` are not UTF-8, each byte from 0x80 on is written as \xNN. A backslash is written as
// two, so that different byte strings give different texts.
std::string escaped(const std::string& bytes) {
  const bool is_plain = is_utf8(bytes);
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\\')
      text += "\\\\";
    else if (byte >= 0x80 && !is_plain)
      text += fmt::format("\\x{:02X}", byte);
    else
      text += c;
  }
  return text;
}

Values escaped(const Values& values) {
  Values texts;
  for (const std::string& value : values) texts.push_back(escaped(value));
  return texts;
}

// Returns the texts of a JSON list. If `text` is no list, returns `text` itself.
Values values_in(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const bool is_list =
      json.is_array() && std::all_of(json.begin(), json.end(), [](const auto& one) { return one.is_string(); });
  return is_list ? json.get<Values>() : Values{text};
}

// Makes a text safe to print on a terminal, in quotes.
std::string shown(const std::string& text) {
  std::string plain;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_control = byte < 0x20 || byte == 0x7f;
    plain += c == '\n' ? std::string("\\n") : is_control ? fmt::format("\\x{:02X}", byte) : std::string(1, c);
  }
  return "'" + plain + "'";
}

std::string difference(const data::Fact& now, const Values& then) {
  const Values values = escaped(now.values);
  if (values.size() == 1 && then.size() == 1 && now.one.empty()) {
    return fmt::format("the {} is {}, it was {}", now.name, shown(values[0]), shown(then[0]));
  }
  std::size_t first = 0;
  while (first < values.size() && first < then.size() && values[first] == then[first]) ++first;
  const std::string what = fmt::format("{} {}", now.one.empty() ? now.name + " value" : now.one, first);
  const auto told = [&](const Values& from) { return first < from.size() ? shown(from[first]) : "not there"; };
  std::string text = fmt::format("{} is {}, it was {}", what, told(values), told(then));
  if (values.size() != then.size()) {
    text += fmt::format(" ({} has {} values, it had {})", now.name, values.size(), then.size());
  } else if (std::is_permutation(values.begin(), values.end(), then.begin())) {
    text += fmt::format(" ({} has the same values in another order)", now.name);
  }
  return text;
}

}  // namespace

TextMap to_text(const data::Meaning& meaning) {
  TextMap texts;
  for (const data::Fact& fact : meaning) {
    texts[std::string(checkpoint::kMeaning) + escaped(fact.name)] = nlohmann::json(escaped(fact.values)).dump();
  }
  return texts;
}

std::vector<std::string> values_of(const std::string& text) {
  std::vector<std::string> values;
  for (const std::string& one : values_in(text)) {
    std::string bytes;
    for (std::size_t i = 0; i < one.size(); ++i) {
      unsigned byte = 0;
      if (one[i] == '\\' && i + 1 < one.size() && one[i + 1] == '\\') {
        ++i;
        bytes += '\\';
      } else if (one.compare(i, 2, "\\x") == 0 && i + 4 <= one.size() &&
                 std::from_chars(one.data() + i + 2, one.data() + i + 4, byte, 16).ec == std::errc()) {
        bytes += static_cast<char>(byte);
        i += 3;
      } else {
        bytes += one[i];
      }
    }
    values.push_back(bytes);
  }
  return values;
}

bool has_meaning(const TextMap& options) {
  const auto first = options.lower_bound(std::string(checkpoint::kMeaning));
  return first != options.end() && first->first.starts_with(checkpoint::kMeaning);
}

std::vector<Difference> differences(const data::Meaning& now, const TextMap& then) {
  std::vector<Difference> found;
  if (!has_meaning(then)) return found;
  const TextMap texts = to_text(now);
  for (const data::Fact& fact : now) {
    const std::string key = std::string(checkpoint::kMeaning) + escaped(fact.name);
    const auto before = then.find(key);
    if (before == then.end()) {
      found.push_back({fact.name, fmt::format("the data say their {}, which they did not", fact.name)});
    } else if (before->second != texts.at(key)) {
      found.push_back({fact.name, difference(fact, values_in(before->second)), fact.is_told_only});
    }
  }
  for (const auto& [key, value] : then) {
    if (!key.starts_with(checkpoint::kMeaning) || texts.contains(key)) continue;
    const std::string name = key.substr(checkpoint::kMeaning.size());
    found.push_back({name, fmt::format("the data do not say their {}, which they did", name)});
  }
  return found;
}

std::string to_line(const TextMap& texts) { return nlohmann::json(texts).dump(); }

TextMap from_line(const std::string& line) { return nlohmann::json::parse(line).get<TextMap>(); }

}  // namespace reigen::train
