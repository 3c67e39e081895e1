// Cuts a stream of bytes into the lines that a console shows.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace reigen::launch {

enum class Piece {
  kLine,      // ended by '\n' (or "\r\n"), or the last line of the stream
  kPart,      // a part of a line that is longer than kMaxLine, but not its last part
  kProgress,  // ended by '\r': the next text will be written over it
};

// Thread rule: one thread at a time.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{64} << 10;
  using Sink = std::function<void(Piece, std::string_view)>;  // gets the text without '\n', "\r\n" or '\r'

  void feed(std::string_view bytes, const Sink& sink);
  // To be called when the stream has ended. Passes on an unfinished line, or the last state of a progress line, as a
  // line.
  void finish(const Sink& sink);

 private:
  std::string line_;
  bool returned_ = false;  // line_ is complete and ended with '\r'; a '\n' may follow ("\r\n")
};

}  // namespace reigen::launch
