// What a tokenizer's file says, in one form for all kinds of files. Thread rule: these types are values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace reigen::format {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using TokenIds = std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>>;

// Two neighbours that become one token. A lower rank goes first.
struct Merge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t result = 0;
  std::uint32_t rank = 0;
};

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool is_special = false;
  bool is_normalized = false;  // found in the normalized text, else in the text itself
  bool takes_left = false;     // takes the blanks before it
  bool takes_right = false;    // takes the blanks behind it
};

struct Expression {
  std::string text;
  std::string where;  // for messages
};

// How a tokenizer on characters writes blanks.
struct Blanks {
  enum class Prefix : std::uint8_t {
    kNone,
    kAlways,       // before each text between added tokens (normalizer Prepend)
    kUnlessThere,  // the same, unless the text begins with one already (Metaspace, "always")
    kFirst         // the same, only at the beginning of the whole text (Metaspace, "first")
  };
  enum class Strip : std::uint8_t { kNone, kOne, kFirstToken };  // what decode() removes at the beginning

  std::string sign = {};          // stands for a blank: "▁"; empty: blanks stay blanks
  Prefix prefix = Prefix::kNone;  // where a sign is added
  Strip strip = Strip::kNone;
  bool in_normalizer = false;  // the normalizer writes them, before added tokens with is_normalized are looked for
  bool splits = false;         // each sign begins a new word
};

struct TokenizerRules {
  bool of_bytes = true;  // the smallest tokens are bytes, else characters of UTF-8
  // tokens[id]: the bytes for which the token stands; nothing for a gap.
  std::vector<std::optional<std::string>> tokens = {};
  TokenIds names = {};  // the id of each token by its name in the file
  TokenIds units = {};  // the tokens that words are made of, by their bytes (of_bytes) or by their characters
  std::vector<Merge> merges = {};
  bool whole_words = false;    // a word that is a token becomes this token, whatever the merges say
  bool byte_fallback = false;  // a character without a token becomes tokens of its bytes, byte_tokens
  std::vector<std::int32_t> byte_tokens = {};
  std::optional<std::int32_t> unknown = {};
  bool fuses_unknown = false;  // neighbouring unknown characters become one token

  std::vector<AddedToken> added = {};
  std::vector<Expression> expressions = {};  // of_bytes: each divides the pieces of the one before
  bool prefix_space = false;                 // of_bytes: a blank before a text that does not begin with one
  Blanks blanks = {};                        // not of_bytes
  std::optional<std::int32_t> bos = {};
  std::optional<std::int32_t> eos = {};
};

// Gives token `id` these bytes. Throws DataError, naming `where`, for an id below 0 or beyond 10 million, and for an id
// that another token has.
void set_token(TokenizerRules& rules, std::int64_t id, const std::string& name, const std::string& bytes,
               const std::string& where);

// The expression of GPT-2, by which ByteLevel divides a text.
std::string_view gpt2_expression();

}  // namespace reigen::format
