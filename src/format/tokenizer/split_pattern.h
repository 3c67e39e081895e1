// The regular expression by which a tokenizer divides a text into words. Tokenizer files are written for Oniguruma (the
// library `tokenizers`) and for Rust's regex (tiktoken); PCRE2 matches here. An expression is accepted only if it means
// the same in PCRE2. Thread rule: a SplitPattern does not change; each thread needs a Matches of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace reigen::format {

class SplitPattern {
 public:
  // `where` says in messages where the expression comes from: "'tokenizer.json': pre_tokenizer.pattern". Throws
  // DataError for an expression that is wrong, and for one with a part whose meaning differs between the libraries.
  SplitPattern(std::string_view expression, std::string where);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  // The memory that one thread needs for matching.
  class Matches {
   public:
    explicit Matches(const SplitPattern& pattern);
    ~Matches();
    Matches(Matches&&) noexcept;
    Matches& operator=(Matches&&) noexcept;

    // Begin and end of the first match in `text`, which is UTF-8, from the byte `from` on. Throws DataError if PCRE2
    // gives up.
    std::optional<std::pair<std::size_t, std::size_t>> next(std::string_view text, std::size_t from);

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The expression that matches just this text.
std::string expression_of_text(std::string_view text);

}  // namespace reigen::format
