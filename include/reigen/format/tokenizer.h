// Byte-pair encodings: a text as numbers of tokens, and back. Reads a tokenizer.json of Hugging Face and the files of
// tiktoken, and gives the ids that `tokenizers` and `tiktoken` give (docs/tokenizers.md says for which files).
//
//   const auto tokenizer = format::Tokenizer::read("tokenizer.json");
//   const std::vector<std::int32_t> ids = tokenizer.encode("To be, or not to be");
//   const std::string text = tokenizer.decode(ids);
//
// Sennrich et al., Neural machine translation of rare words with subword units, 2016, https://arxiv.org/abs/1508.07909
//
// Thread rule: a Tokenizer does not change; several threads may use one at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace reigen::format {

// How a tiktoken file divides a text into words; the file itself does not say it. kAuto chooses by the number of tokens
// in the file: 50256 and 50280 kGpt2 (r50k_base, p50k_base), 100256 kCl100k, 199998 kO200k, 128000 kLlama3. The files
// of these sizes also have the special tokens of their encoding; other files have none.
enum class WordPattern : std::uint8_t { kAuto, kGpt2, kCl100k, kO200k, kLlama3 };

const std::vector<std::string>& names_of_word_patterns();  // "auto", "gpt2", "cl100k", "o200k", "llama3"
WordPattern word_pattern_of(std::string_view name);        // throws InvalidArgument for another name
std::string_view name_of(WordPattern pattern);

struct TokenizerOptions {
  WordPattern pattern = WordPattern::kAuto;  // for tiktoken files only
};

// Whether encode() takes the name of a special token in a text, such as <|endoftext|>, as this token or as text.
enum class SpecialTokens : std::uint8_t { kTokens, kText };

struct SpecialToken {
  std::int32_t id = 0;
  std::string name;
};

class Tokenizer {
 public:
  // Reads a file; its content decides of which kind it is. Throws IoError with exit code 66 for a missing file and for
  // a folder, and with 77 for a file that is not readable. Throws DataError for a damaged file, and for a file that
  // asks for something that this class does not do; the text names it. Throws InvalidArgument if `pattern` is set for
  // another kind of file than tiktoken's, or if kAuto does not know the size of a tiktoken file.
  static Tokenizer read(const std::filesystem::path& path, const TokenizerOptions& options = {});

  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // The ids of a text, without the tokens bos() and eos(). Bytes that are not UTF-8 become tokens of single bytes.
  // Throws DataError for a character without a token, if the file has no token for unknown characters.
  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special = SpecialTokens::kTokens) const;

  // The bytes of a text. For tokenizers on bytes (GPT-2, Llama 3, tiktoken) decode(encode(text)) is `text`, byte for
  // byte. Tokenizers that write a blank as "▁" (Llama 2) give a "▁" back as a blank. Throws InvalidArgument for an id
  // without a token.
  std::string decode(std::span<const std::int32_t> ids) const;

  // What decode() appends for this id inside a text. The blank before a text that Llama 2 removes is still there.
  // Throws InvalidArgument for an id without a token.
  std::string_view bytes(std::int32_t id) const;

  std::int64_t size() const;                                      // the largest id + 1
  bool has(std::int64_t id) const;                                // false for a gap in the numbering
  std::optional<std::int32_t> find(std::string_view name) const;  // by its name in the file: "Ġthe", "▁the", "<s>"
  const std::vector<SpecialToken>& special_tokens() const;        // by ascending id
  std::optional<std::int32_t> bos() const;                        // the token that the file puts before a text
  std::optional<std::int32_t> eos() const;                        // the token that the file puts after a text

  // A hash of everything that decides what encode() and decode() return. Two files with one fingerprint mean the same.
  std::uint64_t fingerprint() const;

  const std::filesystem::path& path() const;  // of the file that was read
  bool is_tiktoken() const;                   // false: a tokenizer.json
  WordPattern pattern() const;                // of a tiktoken file, never kAuto; else kAuto

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace reigen::format
