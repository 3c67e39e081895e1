// Stream sockets: always non-blocking, closed on exec, without Nagle's delay, never raising SIGPIPE.
//
// A socket can be used in two ways. For event loops, read_some() and write_some() move the bytes that can be moved now.
// For clients, write_all() and wait_ready() sleep in poll until a deadline.
// Thread rule: one thread at a time per socket.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "net/address.h"
#include "reigen/base/deadline.h"
#include "reigen/base/error.h"
#include "reigen/base/unique_fd.h"

namespace reigen::net {

// The other side is gone. Code that knows which rank the other side was turns this error into PeerLost.
struct ConnectionClosed : IoError {
  explicit ConnectionClosed(const std::string& message) : IoError(message) {}
};

// The result of a transfer. If it has neither bytes nor `closed`, nothing can be moved now.
struct Transfer {
  std::size_t bytes = 0;
  bool closed = false;
  int error = 0;  // errno if `closed`; 0 if the other side closed in good order
};

// Whether the errno means that nothing can be moved now, but that the caller may try again.
bool would_block(int error);

std::string to_string(const Transfer& closed);  // "it closed the connection", "Connection reset by peer (104)"

// Waits until `fd` is ready for `events` (POLLIN, POLLOUT) or has failed; false if the deadline passes first.
bool wait_ready(int fd, short events, const Deadline& deadline);

class Socket {
 public:
  // Takes a connected descriptor that is already non-blocking.
  explicit Socket(UniqueFd fd);

  int fd() const { return fd_.get(); }
  Address local_address() const;
  Address peer_address() const;

  Transfer read_some(std::span<char> into);
  Transfer write_some(std::span<const char> from);

  // Writes all bytes. Throws Timeout at the deadline, and ConnectionClosed when the other side is gone.
  void write_all(std::span<const char> from, const Deadline& deadline);

 private:
  UniqueFd fd_;
};

struct ConnectAttempt {
  std::optional<Socket> socket = {};
  int error = 0;  // errno when there is no socket; ETIMEDOUT at the deadline
};

// Sets TCP's congestion control by its name in the kernel ("reno", "bbr"). If the kernel refuses the name, nothing
// changes.
void set_congestion_control(int fd, const std::string& name);
std::string congestion_control(int fd);

// Turns on TCP's keep-alive: after the time `idle` without a packet the kernel probes the other side every 20 seconds.
// After nine probes without an answer the connection ends.
void keep_alive(int fd, std::chrono::seconds idle);

// Tries to connect, once. `congestion`: the name of the congestion control; the system's default if empty. It is set
// before the socket connects, because some congestion controls take effect only then.
ConnectAttempt try_connect(const Address& address, const Deadline& deadline, const std::string& congestion = {});

// Whether the address belongs to this machine, so that a socket can be bound to it. The port does not matter.
bool is_of_this_machine(const Address& address);

// For a Unix socket: whether the process at the other end belongs to the same user. True for all other sockets.
bool is_of_this_user(const Socket& socket);

struct Accepted {
  std::optional<Socket> socket = {};
  bool exhausted = false;  // out of descriptors or memory: pause, because poll reports the listener again at once
};

class Listener {
 public:
  // Listens on the first address of `host` that can be bound. "::" also accepts IPv4. Port 0: the kernel chooses a
  // port. Throws BackendError: with exit code 69 if the port is taken or no interface has the address, with 77 if the
  // port is reserved.
  Listener(const std::string& host, std::uint16_t port);
  explicit Listener(const Address& address);  // listens on exactly this address; throws as above
  Listener(UniqueFd listening, const Address& address) : fd_(std::move(listening)), address_(address) {}

  int fd() const { return fd_.get(); }
  const Address& address() const { return address_; }
  Accepted accept();  // the result has neither `socket` nor `exhausted` if no connection waits

 private:
  UniqueFd fd_;
  Address address_;
};

struct ListenAttempt {
  std::optional<Listener> listener = {};
  int error = 0;  // errno when there is no listener
};

// The same as Listener(host, port), but returns the errno if it cannot listen, for callers that may go on without a
// listener. Throws if the host has no address.
ListenAttempt try_listen(const std::string& host, std::uint16_t port);

// Throws the error that Listener throws. `where`: the address as text for the message.
[[noreturn]] void throw_cannot_listen(const std::string& where, int error);

}  // namespace reigen::net
