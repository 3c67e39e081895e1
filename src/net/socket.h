// Stream sockets: always non-blocking, closed on exec, without Nagle's delay, never raising SIGPIPE.
//
// Two ways to use one: read_some/write_some move what can be moved now (event loops); write_all and wait_ready sleep in
// poll until a deadline (clients).
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

// The other side is gone. Who knows which rank it was turns this into PeerLost.
struct ConnectionClosed : IoError {
  explicit ConnectionClosed(const std::string& message) : IoError(message) {}
};

// What a transfer did. Neither bytes nor closed: nothing can be moved now.
struct Transfer {
  std::size_t bytes = 0;
  bool closed = false;
  int error = 0;  // errno when `closed`; 0: the other side closed in good order
};

// Whether errno means that nothing can be moved now, and that it may be tried again.
bool would_block(int error);

std::string to_string(const Transfer& closed);  // "it closed the connection", "Connection reset by peer (104)"

// Waits until `fd` is ready for `events` (POLLIN, POLLOUT) or broken; false when the deadline passes first.
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

  // All of it, or throws Timeout at the deadline, ConnectionClosed when the other side is gone.
  void write_all(std::span<const char> from, const Deadline& deadline);

 private:
  UniqueFd fd_;
};

struct ConnectAttempt {
  std::optional<Socket> socket = {};
  int error = 0;  // errno when there is no socket; ETIMEDOUT at the deadline
};

// How the kernel shares a network with others, by its name there ("reno", "bbr"); what it refuses is left as it is.
void set_congestion_control(int fd, const std::string& name);
std::string congestion_control(int fd);

// After so long without a packet the kernel asks the other side for a sign of life, every 20 seconds; after nine in
// vain the connection has ended.
void keep_alive(int fd, std::chrono::seconds idle);

// One try, no repetition. `congestion`: set before the connection is made, which is when some take hold; empty: the
// system's usual one.
ConnectAttempt try_connect(const Address& address, const Deadline& deadline, const std::string& congestion = {});

// Whether a socket of this machine can have the address (its port does not matter).
bool is_of_this_machine(const Address& address);

// Of a connection inside of this machine: whether a process of the same user made it. True for every other one.
bool is_of_this_user(const Socket& socket);

struct Accepted {
  std::optional<Socket> socket = {};
  bool exhausted = false;  // out of descriptors or memory: the listener stays ready, so pause before the next try
};

class Listener {
 public:
  // Listens on the first address of `host` that can be bound. "::" also takes IPv4. Port 0: the kernel picks one.
  // Throws BackendError (69) when the port is taken or no interface has the address, 77 when it is reserved.
  Listener(const std::string& host, std::uint16_t port);
  explicit Listener(const Address& address);  // this one alone; throws as above
  Listener(UniqueFd listening, const Address& address) : fd_(std::move(listening)), address_(address) {}

  int fd() const { return fd_.get(); }
  const Address& address() const { return address_; }
  Accepted accept();  // neither socket nor exhausted: nobody waits

 private:
  UniqueFd fd_;
  Address address_;
};

struct ListenAttempt {
  std::optional<Listener> listener = {};
  int error = 0;  // errno where there is no listener
};

// As Listener(host, port), for those who may go on without it. Throws where the host has no address.
ListenAttempt try_listen(const std::string& host, std::uint16_t port);

// What Listener throws. `where`: as a person reads it.
[[noreturn]] void throw_cannot_listen(const std::string& where, int error);

}  // namespace reigen::net
