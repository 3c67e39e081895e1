#include "reigen/format/tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "format/byte_stream.h"
#include "format/tokenizer/added_tokens.h"
#include "format/tokenizer/byte_pairs.h"
#include "format/tokenizer/files.h"
#include "format/tokenizer/split_pattern.h"
#include "format/utf8.h"
#include "reigen/base/bytes.h"
#include "reigen/format/hash.h"

namespace reigen::format {

namespace {

constexpr std::uint64_t kMostTokenizerBytes = kGiB;  // of a file; the largest known one has 35 MB

std::string read_tokenizer_file(const std::filesystem::path& path) {
  ByteStream stream(path);
  std::string content;
  for (;;) {
    const std::size_t before = content.size();
    content.resize(before + kMiB);
    const std::size_t got = stream.read(std::as_writable_bytes(std::span(content.data() + before, kMiB)));
    content.resize(before + got);
    if (got < kMiB) return content;
    if (content.size() > kMostTokenizerBytes) {
      throw DataError(Report{.what = fmt::format("'{}' is too large a tokenizer", path.string()),
                             .got = fmt::format("more than {}", format_bytes(kMostTokenizerBytes)),
                             .expected = fmt::format("at most {}", format_bytes(kMostTokenizerBytes)),
                             .fix = "check that this is the right file"});
    }
  }
}

std::uint64_t hash_of_rules(const TokenizerRules& rules) {
  Hash64 hash;
  const auto number = [&](std::int64_t value) { hash.update(&value, sizeof value); };
  const auto text = [&](std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    hash.update(value.data(), value.size());
  };
  number(rules.of_bytes);
  for (const auto& token : rules.tokens) text(token ? *token : std::string_view());
  std::vector<std::pair<std::int32_t, std::string_view>> units;
  for (const auto& [unit, id] : rules.units) units.emplace_back(id, unit);
  std::sort(units.begin(), units.end());
  for (const auto& [id, unit] : units) {
    number(id);
    text(unit);
  }
  for (const Merge& one : rules.merges) {
    for (const std::int64_t value : {one.left, one.right, one.result}) number(value);
    number(one.rank);
  }
  for (const bool flag : {rules.whole_words, rules.byte_fallback, rules.fuses_unknown, rules.prefix_space})
    number(flag);
  number(rules.unknown.value_or(-1));
  for (const AddedToken& one : rules.added) {
    number(one.id);
    text(one.content);
    for (const bool flag : {one.is_special, one.is_normalized, one.takes_left, one.takes_right}) number(flag);
  }
  for (const Expression& one : rules.expressions) text(one.text);
  text(rules.blanks.sign);
  number(static_cast<std::int64_t>(rules.blanks.prefix));
  number(static_cast<std::int64_t>(rules.blanks.strip));
  number(rules.blanks.in_normalizer);
  number(rules.blanks.splits);
  return hash.value();
}

std::string with_signs(std::string_view text, std::string_view sign) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  for (const char c : text) {
    if (c == ' ')
      result += sign;
    else
      result += c;
  }
  return result;
}

// The text as a normalizer that writes blanks gives it.
std::string normalized(const Blanks& blanks, std::string_view text) {
  if (text.empty()) return {};
  return (blanks.prefix == Blanks::Prefix::kAlways ? blanks.sign : "") + with_signs(text, blanks.sign);
}

AddedTokens added_tokens(const TokenizerRules& rules, bool is_normalized) {
  const bool writes_blanks = rules.blanks.in_normalizer;
  std::vector<const AddedToken*> tokens;
  std::vector<std::string> contents;
  for (const AddedToken& one : rules.added) {
    if (one.is_normalized != is_normalized) continue;
    tokens.push_back(&one);
    contents.push_back(is_normalized && writes_blanks ? normalized(rules.blanks, one.content) : one.content);
  }
  return {std::move(tokens), contents};
}

}  // namespace

struct Tokenizer::Impl {
  Impl(TokenizerRules read, std::filesystem::path from, bool of_tiktoken, WordPattern words)
      : rules(std::move(read)),
        pairs(rules, fmt::format("'{}'", from.string())),
        in_text(added_tokens(rules, false)),
        in_normalized(added_tokens(rules, true)),
        fingerprint(hash_of_rules(rules)),
        path(std::move(from)),
        is_tiktoken(of_tiktoken),
        pattern(words) {
    for (const Expression& one : rules.expressions) patterns.emplace_back(one.text, one.where);
    for (const AddedToken& one : rules.added) {
      if (one.is_special) special.push_back({.id = one.id, .name = one.content});
    }
    std::sort(special.begin(), special.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  }

  TokenizerRules rules;
  BytePairs pairs;
  AddedTokens in_text;
  AddedTokens in_normalized;
  std::vector<SplitPattern> patterns;
  std::vector<SpecialToken> special;
  std::uint64_t fingerprint;
  std::filesystem::path path;
  bool is_tiktoken;
  WordPattern pattern;
};

namespace {

// One call of encode().
class TextEncoder {
 public:
  TextEncoder(const TokenizerRules& rules, const BytePairs& pairs, const std::vector<SplitPattern>& patterns)
      : rules_(rules), pairs_(pairs) {
    for (const SplitPattern& one : patterns) matches_.emplace_back(one);
  }

  // A text between added tokens. `is_begin`: the whole text begins with it.
  void encode(std::string_view text, bool is_begin) {
    if (text.empty()) return;
    if (rules_.of_bytes)
      encode_bytes(text);
    else
      encode_characters(text, is_begin);
  }
  void add(std::int32_t id) { ids_.push_back(id); }
  std::vector<std::int32_t> take() { return std::move(ids_); }

 private:
  // Expressions match characters. So bytes that are no characters are taken out, as words of their own.
  void encode_bytes(std::string_view text) {
    std::string prefixed;
    if (rules_.prefix_space && text[0] != ' ') {
      prefixed = " " + std::string(text);
      text = prefixed;
    }
    while (!text.empty()) {
      std::size_t end = 0;
      while (end < text.size()) {
        const std::size_t bytes = character_bytes(text.substr(end));
        if (bytes == 0) break;
        end += bytes;
      }
      if (end > 0) divide(text.substr(0, end), 0);
      std::size_t next = end;
      while (next < text.size() && character_bytes(text.substr(next)) == 0) ++next;
      if (next > end) pairs_.encode(text.substr(end, next - end), scratch_, ids_);
      text.remove_prefix(next);
    }
  }

  // Divides by the expressions from number `level` on. A text between two matches is a piece too.
  void divide(std::string_view text, std::size_t level) {
    if (level == matches_.size()) return pairs_.encode(text, scratch_, ids_);
    std::size_t done = 0;
    std::size_t from = 0;
    while (from <= text.size()) {
      const auto match = matches_[level].next(text, from);
      if (!match) break;
      const auto [begin, end] = *match;
      if (begin == end) {  // an empty match divides the text; the search goes on behind the next character
        if (begin > done) divide(text.substr(done, begin - done), level + 1);
        done = begin;
        if (begin == text.size()) break;
        from = begin + std::max<std::size_t>(character_bytes(text.substr(begin)), 1);
        continue;
      }
      if (begin > done) divide(text.substr(done, begin - done), level + 1);
      divide(text.substr(begin, end - begin), level + 1);
      done = from = end;
    }
    if (done < text.size()) divide(text.substr(done), level + 1);
  }

  void encode_characters(std::string_view text, bool is_begin) {
    const Blanks& blanks = rules_.blanks;
    if (blanks.in_normalizer || blanks.sign.empty()) return pairs_.encode(text, scratch_, ids_);
    const std::string written = with_signs(text, blanks.sign);
    const bool wants =
        blanks.prefix == Blanks::Prefix::kUnlessThere || (blanks.prefix == Blanks::Prefix::kFirst && is_begin);
    const std::string whole = wants && !written.starts_with(blanks.sign) ? blanks.sign + written : written;
    if (!blanks.splits) return pairs_.encode(whole, scratch_, ids_);
    for (std::size_t begin = 0; begin < whole.size();) {
      const std::size_t end = std::min(whole.find(blanks.sign, begin + 1), whole.size());
      pairs_.encode(std::string_view(whole).substr(begin, end - begin), scratch_, ids_);
      begin = end;
    }
  }

  const TokenizerRules& rules_;
  const BytePairs& pairs_;
  std::vector<SplitPattern::Matches> matches_;
  BytePairs::Scratch scratch_;
  std::vector<std::int32_t> ids_;
};

constexpr std::array<std::pair<WordPattern, std::string_view>, 5> kPatterns = {{{WordPattern::kAuto, "auto"},
                                                                                {WordPattern::kGpt2, "gpt2"},
                                                                                {WordPattern::kCl100k, "cl100k"},
                                                                                {WordPattern::kO200k, "o200k"},
                                                                                {WordPattern::kLlama3, "llama3"}}};

}  // namespace

const std::vector<std::string>& names_of_word_patterns() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const auto& [pattern, name] : kPatterns) names.emplace_back(name);
    return names;
  }();
  return kNames;
}

WordPattern word_pattern_of(std::string_view name) {
  for (const auto& [pattern, known] : kPatterns) {
    if (known == name) return pattern;
  }
  throw InvalidArgument(Report{.what = "unknown word pattern",
                               .got = std::string(name),
                               .expected = fmt::format("{}", fmt::join(names_of_word_patterns(), ", ")),
                               .fix = "give one of these"});
}

std::string_view name_of(WordPattern pattern) {
  for (const auto& [known, name] : kPatterns) {
    if (known == pattern) return name;
  }
  throw InvalidArgument(fmt::format("unknown word pattern {}", static_cast<int>(pattern)));
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::read(const std::filesystem::path& path, const TokenizerOptions& options) {
  const std::string content = read_tokenizer_file(path);
  const std::string name = fmt::format("'{}'", path.string());
  WordPattern pattern = options.pattern;
  if (begins_as_tiktoken(content)) {
    TokenizerRules rules = read_tiktoken(content, name, pattern);
    return Tokenizer(std::make_unique<Impl>(std::move(rules), path, true, pattern));
  }
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || content[first] != '{') {
    throw DataError(
        Report{.what = fmt::format("{} is no tokenizer that can be read", name),
               .got = content.empty() ? "an empty file" : fmt::format("{} bytes of another kind", content.size()),
               .expected = "a tokenizer.json of Hugging Face, or a file of tiktoken",
               .fix = "convert it: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes a "
                      "tokenizer.json beside a tokenizer.model of SentencePiece"});
  }
  if (pattern != WordPattern::kAuto) {
    throw InvalidArgument(Report{.what = fmt::format("{} says itself how it divides a text into words", name),
                                 .got = fmt::format("the pattern {}", name_of(pattern)),
                                 .expected = "auto, since this is no file of tiktoken",
                                 .fix = "leave the pattern out"});
  }
  return Tokenizer(std::make_unique<Impl>(read_tokenizer_json(content, name), path, false, pattern));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  const Impl& own = *impl_;
  const bool with_special = special == SpecialTokens::kTokens;
  TextEncoder encoder(own.rules, own.pairs, own.patterns);
  const auto on_token = [&](std::int32_t id) { encoder.add(id); };
  own.in_text.divide(
      text, with_special,
      [&](std::string_view part, std::size_t at) {
        const Blanks& blanks = own.rules.blanks;
        const std::string written = blanks.in_normalizer ? normalized(blanks, part) : std::string();
        own.in_normalized.divide(
            blanks.in_normalizer ? written : part, with_special,
            [&](std::string_view piece, std::size_t place) { encoder.encode(piece, at + place == 0); }, on_token);
      },
      on_token);
  return encoder.take();
}

std::string_view Tokenizer::bytes(std::int32_t id) const {
  REIGEN_CHECK(has(id), "'{}' has no token {}: it has tokens below {}", impl_->path.string(), id, size());
  return *impl_->rules.tokens[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  const Blanks::Strip strip = impl_->rules.blanks.strip;
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::string_view part = bytes(ids[i]);
    if (i == 0 && strip == Blanks::Strip::kFirstToken) {
      part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
    }
    text += part;
  }
  if (strip == Blanks::Strip::kOne && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::int64_t Tokenizer::size() const { return static_cast<std::int64_t>(impl_->rules.tokens.size()); }
bool Tokenizer::has(std::int64_t id) const {
  return id >= 0 && id < size() && impl_->rules.tokens[static_cast<std::size_t>(id)].has_value();
}

std::optional<std::int32_t> Tokenizer::find(std::string_view name) const {
  const auto found = impl_->rules.names.find(name);
  return found == impl_->rules.names.end() ? std::nullopt : std::optional(found->second);
}

const std::vector<SpecialToken>& Tokenizer::special_tokens() const { return impl_->special; }
std::optional<std::int32_t> Tokenizer::bos() const { return impl_->rules.bos; }
std::optional<std::int32_t> Tokenizer::eos() const { return impl_->rules.eos; }
std::uint64_t Tokenizer::fingerprint() const { return impl_->fingerprint; }
const std::filesystem::path& Tokenizer::path() const { return impl_->path; }
bool Tokenizer::is_tiktoken() const { return impl_->is_tiktoken; }
WordPattern Tokenizer::pattern() const { return impl_->pattern; }

}  // namespace reigen::format
