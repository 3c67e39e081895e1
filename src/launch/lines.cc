#include "launch/lines.h"

#include <algorithm>

namespace reigen::launch {

void LineSplitter::feed(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    if (returned_ && bytes.front() != '\n') {
      // Many programs write "\r" before the text of a progress line; such a "\r" ends no text.
      if (bytes.front() == '\r') {
        bytes.remove_prefix(1);
        continue;
      }
      returned_ = false;
      line_.clear();
    }
    const std::size_t room = kMaxLine - line_.size();
    const std::size_t end = std::min(bytes.find_first_of("\r\n"), bytes.size());
    const std::size_t taken = std::min(end, room);
    line_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (bytes.empty()) return;
    if (bytes.front() == '\n') {
      sink(Piece::kLine, line_);
      line_.clear();
      returned_ = false;
      bytes.remove_prefix(1);
    } else if (bytes.front() == '\r') {
      if (!line_.empty()) {
        sink(Piece::kProgress, line_);
        returned_ = true;
      }
      bytes.remove_prefix(1);
    } else {
      sink(Piece::kPart, line_);
      line_.clear();
    }
  }
}

void LineSplitter::finish(const Sink& sink) {
  if (!line_.empty()) sink(Piece::kLine, line_);
  line_.clear();
  returned_ = false;
}

}  // namespace reigen::launch
