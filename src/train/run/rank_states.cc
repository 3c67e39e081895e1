#include "train/run/rank_states.h"

#include <fmt/format.h>

#include "base/text.h"
#include "reigen/base/error.h"
#include "reigen/comm/byte_strings.h"

namespace reigen::train {

namespace {

std::string to_hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string from_hex(const std::string& text, const std::string& key) {
  const auto digit = [&](char c) -> unsigned {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
    throw DataError(Report{.what = fmt::format("the checkpoint's {} has something else than hexadecimal digits", key),
                           .got = std::string(1, c)});
  };
  if (text.size() % 2 != 0)
    throw DataError(Report{.what = fmt::format("the checkpoint's {} has an odd number of digits", key)});
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) bytes += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
  return bytes;
}

}  // namespace

void keep_states(std::map<std::string, std::string>& options, const std::map<std::string, std::string>& own,
                 const Communicator& world) {
  std::string lines;  // a key and a value in turn
  for (const auto& [name, state] : own) {
    if (!state.empty()) lines += fmt::format("state.{}.{}\n{}\n", name, world.rank(), to_hex(state));
  }
  for (const std::string& text : comm::all_gather_bytes(lines, world, "states")) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t key = text.find('\n', at);
      const std::size_t value = text.find('\n', key + 1);
      options[text.substr(at, key - at)] = text.substr(key + 1, value - key - 1);
      at = value + 1;
    }
  }
}

std::vector<std::string> states_in(const std::map<std::string, std::string>& options, const std::string& name) {
  const std::string prefix = fmt::format("state.{}.", name);
  std::vector<std::string> states;
  for (const auto& [key, text] : options) {
    if (!key.starts_with(prefix)) continue;
    const auto rank = base::parse<std::size_t>(std::string_view(key).substr(prefix.size()));
    if (!rank || *rank > 1'000'000) continue;  // of another name that begins like this one
    if (states.size() <= *rank) states.resize(*rank + 1);
    states[*rank] = from_hex(text, key);
  }
  return states;
}

}  // namespace reigen::train
