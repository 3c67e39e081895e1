#include "net/frame.h"

#include <fmt/format.h>
#include <poll.h>

#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "base/check.h"
#include "net/wire.h"
#include "reigen/base/bytes.h"

namespace reigen::net {

namespace {

void append_frame(std::string& out, std::string_view payload) {
  REIGEN_ASSERT(payload.size() <= std::numeric_limits<std::uint32_t>::max(), "frame of {} bytes", payload.size());
  put_u32(out, static_cast<std::uint32_t>(payload.size()));
  out.append(payload);
}

}  // namespace

FrameReader::State FrameReader::read(Socket& socket) {
  for (;;) {
    const bool in_header = got_ < header_.size();
    if (!in_header && got_ == header_.size() + payload_.size()) return State::kFrame;
    const std::span<char> into =
        in_header ? std::span<char>(header_).subspan(got_) : std::span<char>(payload_).subspan(got_ - header_.size());
    const Transfer moved = socket.read_some(into);
    if (moved.closed) {
      end_ = moved;
      return State::kClosed;
    }
    if (moved.bytes == 0) return State::kWouldBlock;
    got_ += moved.bytes;
    if (!in_header || got_ < header_.size()) continue;
    const std::size_t length = WireReader(std::string_view(header_.data(), header_.size())).u32();
    if (length > limit_) {
      throw DataError(Report{.what = "a message is longer than allowed here",
                             .got = format_bytes(length),
                             .expected = "at most " + format_bytes(limit_)});
    }
    payload_.resize(length);
  }
}

std::string FrameReader::take() {
  got_ = 0;
  return std::exchange(payload_, {});
}

std::optional<std::string> FrameReader::wait(Socket& socket, const Deadline& deadline) {
  for (;;) {
    switch (read(socket)) {
      case State::kFrame: return take();
      case State::kClosed: throw ConnectionClosed(to_string(end_));
      case State::kWouldBlock: break;
    }
    if (!wait_ready(socket.fd(), POLLIN, deadline)) return std::nullopt;
  }
}

void FrameWriter::add(std::string_view payload) { append_frame(buffer_, payload); }

bool FrameWriter::flush(Socket& socket) {
  while (!empty()) {
    const Transfer moved = socket.write_some(std::span<const char>(buffer_).subspan(sent_));
    if (moved.closed) return false;
    if (moved.bytes == 0) return true;
    sent_ += moved.bytes;
  }
  std::string().swap(buffer_);  // frees the memory of a large reply
  sent_ = 0;
  return true;
}

void write_frame(Socket& socket, std::string_view payload, const Deadline& deadline) {
  std::string frame;
  frame.reserve(payload.size() + sizeof(std::uint32_t));
  append_frame(frame, payload);
  socket.write_all(frame, deadline);
}

}  // namespace reigen::net
