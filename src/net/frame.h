// Framed messages on a stream: a u32 length (little-endian), then that many bytes.
//
// A reader has a limit. It checks the length before it allocates memory, so that four bytes from an unknown sender
// cannot make it allocate gigabytes. A reader never reads beyond the end of the frame.
// Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "net/socket.h"
#include "reigen/base/deadline.h"

namespace reigen::net {

class FrameReader {
 public:
  enum class State { kFrame, kWouldBlock, kClosed };

  explicit FrameReader(std::size_t limit) : limit_(limit) {}
  void set_limit(std::size_t limit) { limit_ = limit; }  // holds for all frames whose length has not been read yet

  // Reads the bytes that have arrived, up to the end of one frame. kFrame: the frame is whole, and take() returns it.
  // Throws DataError when the length exceeds the limit; after that the stream cannot be used any more.
  State read(Socket& socket);
  std::string take();

  // Reads and polls until a frame is whole. Returns nullopt at the deadline; the bytes that have arrived are kept for
  // the next call. Throws ConnectionClosed if the stream has ended.
  std::optional<std::string> wait(Socket& socket, const Deadline& deadline);

 private:
  std::size_t limit_;
  std::array<char, 4> header_{};
  std::string payload_;
  std::size_t got_ = 0;  // bytes of header and payload that have arrived
  Transfer end_{};       // the transfer that found the end of the stream
};

// Collects frames that wait to be sent.
class FrameWriter {
 public:
  void add(std::string_view payload);
  bool empty() const { return sent_ == buffer_.size(); }
  // Sends the bytes that the socket accepts now. Returns false when the other side is gone.
  bool flush(Socket& socket);

 private:
  std::string buffer_;
  std::size_t sent_ = 0;
};

// Writes one whole frame. Throws as Socket::write_all() does.
void write_frame(Socket& socket, std::string_view payload, const Deadline& deadline);

}  // namespace reigen::net
