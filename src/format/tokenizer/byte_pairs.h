// Byte-pair encoding of one word: its units are merged, the pair with the lowest rank first and of equal ranks the left
// one, until no pair has a merge. Thread rule: a BytePairs does not change; each thread needs a Scratch of its own.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "format/tokenizer/rules.h"

namespace reigen::format {

class BytePairs {
 public:
  struct Symbol {
    std::int32_t id = 0;
    std::int64_t before = -1;
    std::int64_t next = -1;
  };
  struct Candidate {
    std::uint32_t rank = 0;
    std::int32_t left = 0;
    std::int32_t right = 0;
    std::int64_t at = 0;
  };
  // The memory of one thread. It keeps the tokens of words that were seen before.
  struct Scratch {
    std::vector<Symbol> symbols = {};
    std::vector<Candidate> heap = {};
    std::unordered_map<std::string, std::vector<std::int32_t>, TextHash, std::equal_to<>> known = {};
  };

  // `rules` must outlive this object. `name` is the file's name for messages.
  BytePairs(const TokenizerRules& rules, std::string name);

  // Appends the tokens of the word. Throws DataError for a character without a token.
  void encode(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;

 private:
  struct Target {
    std::uint32_t rank = 0;
    std::int32_t result = 0;
  };
  struct PairHash {
    std::size_t operator()(std::uint64_t pair) const { return pair * 0x9E3779B97F4A7C15ULL ^ pair >> 29; }
  };
  static std::uint64_t key(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }

  void note_neighbours(std::string_view result);
  void encode_part(std::string_view part, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_in_parts(std::string_view word, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void start(std::string_view part, std::vector<Symbol>& symbols) const;
  void start_characters(std::string_view part, std::vector<Symbol>& symbols) const;
  void merge(Scratch& scratch) const;
  void push(Scratch& scratch, std::int64_t at) const;
  [[noreturn]] void fail_without_token(std::string_view unit) const;

  const TokenizerRules& rules_;
  std::string name_;
  std::array<std::int32_t, 256> of_byte_{};  // -1: no token
  std::unordered_map<std::uint64_t, Target, PairHash> merges_;
  // Pairs of neighbouring characters inside of the results of merges. No merge reaches across another pair.
  std::unordered_set<std::uint64_t, PairHash> neighbours_;
};

}  // namespace reigen::format
