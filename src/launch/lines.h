// Cuts a stream of bytes into the lines that a console shows.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace reigen::launch {

enum class Piece {
  kLine,      // ended by '\n' (or "\r\n"), or the last one of the stream
  kPart,      // the first part of a line that is longer than the cap
  kProgress,  // ended by '\r': will be written over
};

// Thread rule: one thread at a time.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = std::size_t{64} << 10;
  using Sink = std::function<void(Piece, std::string_view)>;  // the text, without its end mark

  void feed(std::string_view bytes, const Sink& sink);
  // The stream ended: a line without an end, or the last state of a progress line, is a line now.
  void finish(const Sink& sink);

 private:
  std::string line_;
  bool returned_ = false;  // line_ is complete, its end mark was '\r': a '\n' may follow
};

}  // namespace reigen::launch
