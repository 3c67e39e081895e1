// Checks of texts from files, which may be any bytes. Thread rule: no shared state.
#pragma once

#include <cstddef>
#include <string_view>

namespace reigen::format {

// The number of bytes of the UTF-8 character (RFC 3629) at the beginning of `text`, which is not empty; 0 if there is
// none.
std::size_t character_bytes(std::string_view text);

bool is_utf8(std::string_view text);  // as RFC 3629 defines it

// The text without an incomplete character at its end, for texts that were cut.
std::string_view without_cut_character(std::string_view text);

}  // namespace reigen::format
