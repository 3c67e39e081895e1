// Text of a model for a terminal, which must not execute commands in it. Thread rule: used by one thread.
#pragma once

#include <string>
#include <string_view>

namespace reigen::train {

class PrintableText {
 public:
  // The next bytes of the text, as far as they can be printed: characters of UTF-8 and line ends as they are; a "?" for
  // each other control character and for each byte that is no character. A character that is not complete yet is kept
  // back.
  std::string take(std::string_view bytes);
  std::string finish();  // a "?" for each byte that was kept back

 private:
  std::string waiting_;
};

// The whole text at once.
std::string printable(std::string_view text);

}  // namespace reigen::train
