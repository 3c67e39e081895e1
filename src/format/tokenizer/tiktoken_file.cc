#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/text.h"
#include "format/tokenizer/files.h"
#include "reigen/base/error.h"

namespace reigen::format {

namespace {

using Named = std::pair<std::string_view, std::int32_t>;

constexpr std::string_view kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";

// The expressions of tiktoken 0.14, and that of Llama 3. A possessive repetition behind a counted one is left out: no
// match changes.
std::string expression_of(WordPattern pattern) {
  switch (pattern) {
    case WordPattern::kGpt2:
      return R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++\z|\s+(?!\S)|\s)";
    case WordPattern::kCl100k:
      return R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\z|)"
             R"(\s*[\r\n]|\s+(?!\S)|\s)";
    case WordPattern::kO200k:
      return fmt::format(
          R"([^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{0}?|)"
          R"([^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{0}?|)"
          R"(\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          kContractions);
    case WordPattern::kLlama3:
      return fmt::format(
          R"({}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          kContractions);
    case WordPattern::kAuto: break;
  }
  throw InternalError("a tokenizer without a word pattern");
}

struct Encoding {
  std::size_t tokens;  // in the file
  WordPattern pattern;
  std::vector<Named> special;
};

const std::vector<Encoding>& encodings() {
  static const std::vector<Encoding> kEncodings = {
      {50256, WordPattern::kGpt2, {{"<|endoftext|>", 50256}}},
      {50280, WordPattern::kGpt2, {{"<|endoftext|>", 50256}}},
      {100256,
       WordPattern::kCl100k,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {199998, WordPattern::kO200k, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
      {128000,
       WordPattern::kLlama3,
       {{"<|begin_of_text|>", 128000},
        {"<|end_of_text|>", 128001},
        {"<|start_header_id|>", 128006},
        {"<|end_header_id|>", 128007},
        {"<|eot_id|>", 128009}}},
  };
  return kEncodings;
}

// Llama 3 has 256 special tokens. Those without a use are numbered through, around the named ones.
std::vector<std::pair<std::string, std::int32_t>> special_tokens(const Encoding& encoding) {
  std::vector<std::pair<std::string, std::int32_t>> all(encoding.special.begin(), encoding.special.end());
  if (encoding.pattern != WordPattern::kLlama3) return all;
  const auto has = [&](std::int32_t id) {
    return std::any_of(encoding.special.begin(), encoding.special.end(),
                       [&](const Named& one) { return one.second == id; });
  };
  int reserved = 0;
  for (std::int32_t id = 128000; id < 128256; ++id) {
    if (!has(id)) all.emplace_back(fmt::format("<|reserved_special_token_{}|>", reserved++), id);
  }
  return all;
}

std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

struct RankLine {
  std::string bytes;
  std::int64_t rank = 0;
};

std::optional<RankLine> parse_line(std::string_view line) {
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  auto bytes = decode_base64(line.substr(0, blank));
  const auto rank = base::parse<std::int64_t>(line.substr(blank + 1));
  if (!bytes || !rank) return std::nullopt;
  return RankLine{std::move(*bytes), *rank};
}

std::string_view take_line(std::string_view& content) {
  const std::size_t end = content.find('\n');
  std::string_view line = content.substr(0, end);
  content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// A pair of tokens has the merge whose result is the token of their bytes, with the rank of that token.
void add_merges(TokenizerRules& rules) {
  for (std::size_t id = 0; id < rules.tokens.size(); ++id) {
    if (!rules.tokens[id]) continue;
    const std::string_view bytes = *rules.tokens[id];
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = rules.units.find(bytes.substr(0, cut));
      const auto right = rules.units.find(bytes.substr(cut));
      if (left == rules.units.end() || right == rules.units.end()) continue;
      rules.merges.push_back({.left = left->second,
                              .right = right->second,
                              .result = static_cast<std::int32_t>(id),
                              .rank = static_cast<std::uint32_t>(id)});
    }
  }
}

void require_all_bytes(const TokenizerRules& rules, const std::string& name) {
  for (int byte = 0; byte < 256; ++byte) {
    if (rules.units.contains(std::string(1, static_cast<char>(byte)))) continue;
    throw DataError(Report{.what = fmt::format("{} has no token for a byte", name),
                           .got = fmt::format("{} tokens without the byte {:#04x}", rules.units.size(), byte),
                           .expected = "a token for each of the 256 bytes",
                           .fix = "fetch the whole file again"});
  }
}

}  // namespace

bool begins_as_tiktoken(std::string_view content) { return parse_line(take_line(content)).has_value(); }

TokenizerRules read_tiktoken(std::string_view content, const std::string& name, WordPattern& pattern) {
  TokenizerRules rules;
  rules.whole_words = true;
  for (std::int64_t number = 1; !content.empty(); ++number) {
    const std::string_view text = take_line(content);
    if (text.empty()) continue;
    const auto line = parse_line(text);
    const std::string where = fmt::format("{}: line {}", name, number);
    if (!line) {
      throw DataError(Report{.what = fmt::format("{} is wrong", where),
                             .got = fmt::format("{} bytes", text.size()),
                             .expected = "a token in base64, a blank, and its rank",
                             .fix = "check that this is a file of tiktoken, or fetch it again"});
    }
    set_token(rules, line->rank, line->bytes, line->bytes, where);
    rules.units.emplace(line->bytes, static_cast<std::int32_t>(line->rank));
  }
  require_all_bytes(rules, name);
  add_merges(rules);
  const auto known = std::find_if(encodings().begin(), encodings().end(),
                                  [&](const Encoding& one) { return one.tokens == rules.units.size(); });
  if (pattern == WordPattern::kAuto) {
    if (known == encodings().end()) {
      throw InvalidArgument(Report{.what = fmt::format("{} does not say how it divides a text into words", name),
                                   .got = fmt::format("{} tokens", rules.units.size()),
                                   .expected = "50256, 50280, 100256, 128000 or 199998 tokens, or a pattern",
                                   .fix = "name the pattern: --data.word_pattern gpt2, cl100k, o200k or llama3"});
    }
    pattern = known->pattern;
  }
  rules.expressions.push_back({expression_of(pattern), fmt::format("{}: the pattern {}", name, name_of(pattern))});
  if (known == encodings().end() || known->pattern != pattern) return rules;
  for (const auto& [token, id] : special_tokens(*known)) {
    set_token(rules, id, token, token, name);
    rules.added.push_back({.id = id, .content = token, .is_special = true});
  }
  return rules;
}

}  // namespace reigen::format
