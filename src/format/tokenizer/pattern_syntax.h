// Translates the regular expressions of tokenizer files into those of PCRE2. Thread rule: no shared state.
#pragma once

#include <string>
#include <string_view>

namespace reigen::format {

// Returns an expression for PCRE2 (with PCRE2_UTF) that matches what `expression` matches in Oniguruma and in Rust's
// regex. Throws DataError, naming `where` and the part, for a part whose meaning differs between them, and for syntax
// that no known tokenizer uses.
std::string pcre2_expression(std::string_view expression, const std::string& where);

}  // namespace reigen::format
