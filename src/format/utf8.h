// Checks of texts from files, which may be any bytes. Thread rule: no shared state.
#pragma once

#include <string_view>

namespace reigen::format {

bool is_utf8(std::string_view text);  // as RFC 3629 defines it

// The text without an incomplete character at its end, for texts that were cut.
std::string_view without_cut_character(std::string_view text);

}  // namespace reigen::format
