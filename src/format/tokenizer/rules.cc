#include "format/tokenizer/rules.h"

#include <fmt/format.h>

#include "reigen/base/error.h"

namespace reigen::format {

namespace {

constexpr std::int64_t kMostTokens = 10'000'000;  // so that a damaged id takes no memory

std::string shown_bytes(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    const bool is_plain = c >= 0x20 && c < 0x7f;
    text += is_plain ? std::string(1, c) : fmt::format("\\x{:02X}", static_cast<unsigned char>(c));
  }
  return "'" + text + "'";
}

}  // namespace

void set_token(TokenizerRules& rules, std::int64_t id, const std::string& name, const std::string& bytes,
               const std::string& where) {
  const auto refuse = [&](const std::string& expected) {
    throw DataError(Report{.what = fmt::format("{}: a wrong number of a token", where),
                           .got = fmt::format("{} with the number {}", shown_bytes(name), id),
                           .expected = expected,
                           .fix = "fetch the file again, or correct it"});
  };
  if (id < 0 || id >= kMostTokens) refuse(fmt::format("a number from 0 to {}", kMostTokens - 1));
  const auto place = static_cast<std::size_t>(id);
  if (place >= rules.tokens.size()) rules.tokens.resize(place + 1);
  if (rules.tokens[place])
    refuse(fmt::format("a number that no other token has, as {}", shown_bytes(*rules.tokens[place])));
  if (!rules.names.emplace(name, static_cast<std::int32_t>(id)).second) refuse("each token only once");
  rules.tokens[place] = bytes;
}

std::string_view gpt2_expression() {
  return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
}

}  // namespace reigen::format
