// GPT-2's characters for bytes. A vocabulary in JSON cannot hold bytes, so each byte has a character: printable bytes
// of Latin-1 stand for themselves, the others for characters from U+0100 on ("Ġ" is a blank). Thread rule: no shared
// state.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace reigen::format {

// The bytes of a text of such characters; nothing if it has another character.
std::optional<std::string> bytes_of_characters(std::string_view text);

}  // namespace reigen::format
