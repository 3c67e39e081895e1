#include "comm/tcp/control.h"

#include <array>

#include "net/wire.h"

namespace reigen::comm::tcp {

namespace {

constexpr char kBeat = 'b';
constexpr char kFarewell = 'l';
constexpr char kAbort = 'a';
constexpr std::size_t kAbortHead = 5;  // an abort message begins with a letter (1 byte) and its length (4 bytes)
constexpr std::size_t kTextMax = 4096;
constexpr std::size_t kUnsentMax = std::size_t{64} << 10;

}  // namespace

void Control::connect(int rank, net::Socket socket) {
  std::lock_guard lock(mutex_);
  Link& link = links_[static_cast<std::size_t>(rank)];
  link.socket.emplace(std::move(socket));
  link.peer.last_sign = Deadline::Clock::now();
}

// Bytes for which a connection had no room are sent before the next message. Without them, the other side would read
// the next message as the rest of an incomplete one. If more than kUnsentMax bytes would wait for a connection, the
// other side has not read for a long time. Then the other side counts as gone, and the message is not sent to it.
void Control::send_to_all(const std::string& message) {
  for (Link& link : links_) {
    if (!link.socket || link.peer.ended) continue;
    push(link);
    if (link.unsent.size() + message.size() > kUnsentMax) continue;
    link.unsent += message;
    push(link);
  }
}

void Control::push(Link& link) {
  if (link.unsent.empty() || link.peer.ended) return;
  // The kernel reports an error only once, so `why` keeps it. The link does not count as ended yet, because this rank
  // can still read the data that the other side sent before the error.
  const net::Transfer moved = link.socket->write_some(link.unsent);
  if (moved.closed && link.peer.why.empty()) link.peer.why = net::to_string(moved);
  link.unsent.erase(0, moved.closed ? std::string::npos : moved.bytes);
}

void Control::beat() {
  std::lock_guard lock(mutex_);
  send_to_all(std::string(1, kBeat));
  for (Link& link : links_) read(link);
}

void Control::say_farewell() {
  std::lock_guard lock(mutex_);
  send_to_all(std::string(1, kFarewell));
}

void Control::publish_abort(const AbortCause& cause, std::uint64_t completed) {
  std::string body;
  net::put_u32(body, static_cast<std::uint32_t>(cause.kind));
  net::put_u32(body, static_cast<std::uint32_t>(cause.rank));
  net::put_u64(body, completed);
  net::put_bytes(body, std::string_view(cause.text).substr(0, kTextMax));
  std::string message(1, kAbort);
  net::put_bytes(message, body);
  std::lock_guard lock(mutex_);
  send_to_all(message);
}

void Control::read(Link& link) {
  std::array<char, 1024> buffer;
  while (link.socket && !link.peer.ended) {
    const net::Transfer moved = link.socket->read_some(buffer);
    if (moved.closed) {
      link.peer.ended = true;
      link.peer.ended_since = Deadline::Clock::now();
      if (link.peer.why.empty()) link.peer.why = net::to_string(moved);
    }
    if (moved.bytes == 0) break;
    link.peer.last_sign = Deadline::Clock::now();
    link.inbox.append(buffer.data(), moved.bytes);
  }
  understand(link);
}

void Control::understand(Link& link) {
  std::size_t at = 0;
  while (at < link.inbox.size()) {
    const char letter = link.inbox[at];
    if (letter != kAbort) {
      if (letter == kFarewell) link.peer.left = true;
      at += 1;
      continue;
    }
    const std::string_view rest = std::string_view(link.inbox).substr(at);
    if (rest.size() < kAbortHead) break;
    const std::size_t length = net::WireReader(rest.substr(1)).u32();
    if (rest.size() < kAbortHead + length) break;
    net::WireReader in(rest.substr(kAbortHead, length));
    AbortCause cause;
    cause.kind = static_cast<AbortCause::Kind>(in.u32());
    cause.rank = static_cast<int>(in.u32());
    link.peer.completed = in.u64();
    cause.text = in.bytes();
    link.peer.cause = std::move(cause);
    at += kAbortHead + length;
  }
  link.inbox.erase(0, at);
}

void Control::look() {
  std::lock_guard lock(mutex_);
  for (Link& link : links_) {
    push(link);
    read(link);
  }
}

bool Control::has_unsent(int rank) const {
  std::lock_guard lock(mutex_);
  return !links_[static_cast<std::size_t>(rank)].unsent.empty();
}

Control::Peer Control::peer(int rank) const {
  std::lock_guard lock(mutex_);
  return links_[static_cast<std::size_t>(rank)].peer;
}

std::optional<AbortCause> Control::cause_for(std::uint64_t sequence) const {
  std::lock_guard lock(mutex_);
  for (const Link& link : links_) {
    if (link.peer.cause && link.peer.completed <= sequence) return link.peer.cause;
  }
  return std::nullopt;
}

}  // namespace reigen::comm::tcp
