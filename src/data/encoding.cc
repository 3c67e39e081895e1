#include "reigen/data/encoding.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "reigen/base/error.h"
#include "reigen/format/hash.h"

namespace reigen::data {

Encoding::Encoding(std::string alphabet) : alphabet_(std::move(alphabet)) {
  REIGEN_CHECK(!alphabet_.empty(), "an encoding of bytes needs at least one byte");
  for (std::size_t i = 0; i < alphabet_.size(); ++i) {
    REIGEN_CHECK(alphabet_.find(alphabet_[i]) == i, "byte {} of an alphabet is there twice", i);
  }
}

Encoding::Encoding(TokenizerPtr tokenizer) : tokenizer_(std::move(tokenizer)) {
  REIGEN_CHECK(tokenizer_ != nullptr, "an encoding needs a tokenizer");
}

std::int64_t Encoding::size() const {
  return is_of_bytes() ? static_cast<std::int64_t>(alphabet_.size()) : tokenizer_->size();
}

bool Encoding::has(std::int64_t token) const {
  return is_of_bytes() ? token >= 0 && token < size() : tokenizer_->has(token);
}

std::string_view Encoding::unit() const { return is_of_bytes() ? "characters" : "tokens"; }

std::vector<std::int64_t> Encoding::encode(std::string_view text) const {
  std::vector<std::int64_t> tokens;
  if (!is_of_bytes()) {
    const std::vector<std::int32_t> ids = tokenizer_->encode(text);
    tokens.assign(ids.begin(), ids.end());
    return tokens;
  }
  for (const char c : text) {
    const std::size_t token = alphabet_.find(c);
    if (token == std::string::npos) {
      throw DataError(Report{
          .what = "the text has a byte without a token",
          .got = fmt::format("the byte {:#04x}", static_cast<unsigned char>(c)),
          .expected = fmt::format("one of the {} bytes of the text that the model was trained on", alphabet_.size()),
          .fix = "write the text without it"});
    }
    tokens.push_back(static_cast<std::int64_t>(token));
  }
  return tokens;
}

std::string_view Encoding::bytes(std::int64_t token) const {
  REIGEN_CHECK(has(token), "token {} is outside of the vocabulary of {}", token, size());
  if (is_of_bytes()) return std::string_view(alphabet_).substr(static_cast<std::size_t>(token), 1);
  return tokenizer_->bytes(static_cast<std::int32_t>(token));
}

std::string Encoding::decode(std::span<const std::int64_t> tokens) const {
  if (!is_of_bytes()) {
    std::vector<std::int32_t> ids;
    ids.reserve(tokens.size());
    for (const std::int64_t token : tokens) {
      bytes(token);  // so that no number is cut to 32 bits
      ids.push_back(static_cast<std::int32_t>(token));
    }
    return tokenizer_->decode(ids);
  }
  std::string text;
  for (const std::int64_t token : tokens) text += bytes(token);
  return text;
}

Fact Encoding::fact() const {
  if (!is_of_bytes()) {
    return {.name = "tokenizer",
            .values = {fmt::format("xxh64 {} of {} tokens", format::hash_text(tokenizer_->fingerprint()), size())}};
  }
  Fact alphabet{.name = "alphabet", .values = {}, .one = "token"};
  for (const char c : alphabet_) alphabet.values.emplace_back(1, c);
  return alphabet;
}

}  // namespace reigen::data
