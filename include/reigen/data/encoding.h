// How a text is written as tokens: each byte is a token, or each token is one of a byte-pair encoding
// (format/tokenizer.h).
//
// Thread rule: an Encoding does not change; several threads may use one at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reigen/data/meaning.h"
#include "reigen/format/tokenizer.h"

namespace reigen::data {

using TokenizerPtr = std::shared_ptr<const format::Tokenizer>;

class Encoding {
 public:
  // Token i stands for the byte alphabet[i]. Throws InvalidArgument for an empty alphabet and for a byte that is there
  // twice.
  explicit Encoding(std::string alphabet);
  // The tokens are those of the tokenizer. Throws InvalidArgument for a null pointer.
  explicit Encoding(TokenizerPtr tokenizer);

  std::int64_t size() const;           // the largest token + 1
  bool has(std::int64_t token) const;  // false for a gap in a tokenizer's numbering
  bool is_of_bytes() const { return tokenizer_ == nullptr; }
  const std::string& alphabet() const { return alphabet_; }     // empty with a tokenizer
  const TokenizerPtr& tokenizer() const { return tokenizer_; }  // null if tokens are bytes
  std::string_view unit() const;                                // "characters" or "tokens", for messages

  // Throws DataError for a byte or character without a token.
  std::vector<std::int64_t> encode(std::string_view text) const;
  // The bytes of these tokens as a text. Throws InvalidArgument for a number without a token.
  std::string decode(std::span<const std::int64_t> tokens) const;
  // The bytes of one token inside of a text. Throws InvalidArgument likewise.
  std::string_view bytes(std::int64_t token) const;

  // What the tokens mean: the fact "alphabet" (the byte of each token), or "tokenizer" (a hash of what it does).
  Fact fact() const;

 private:
  std::string alphabet_;
  TokenizerPtr tokenizer_;
};

}  // namespace reigen::data
