// The readers of both kinds of tokenizer files. `name` is the file's name in quotes, for messages. Thread rule: no
// shared state.
#pragma once

#include <string>
#include <string_view>

#include "format/tokenizer/rules.h"
#include "reigen/format/tokenizer.h"

namespace reigen::format {

// A tokenizer.json. Throws DataError for wrong JSON, and for everything that is not supported.
TokenizerRules read_tokenizer_json(std::string_view content, const std::string& name);

// A file of tiktoken, lines of a token in base64 and its rank. kAuto is replaced in `pattern`. Throws DataError for a
// wrong line, and InvalidArgument if kAuto does not know the number of tokens.
TokenizerRules read_tiktoken(std::string_view content, const std::string& name, WordPattern& pattern);

// Whether the content is lines as tiktoken writes them; only the first line is read.
bool begins_as_tiktoken(std::string_view content);

}  // namespace reigen::format
