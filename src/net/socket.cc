#include "net/socket.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

#include "base/check.h"

namespace reigen::net {

namespace {

using namespace std::chrono_literals;

void set_option(int fd, int level, int name, int value) {
  REIGEN_SYSCALL(::setsockopt(fd, level, name, &value, sizeof(value)));
}

// poll counts in milliseconds. The time is rounded up, so that the end of a wait does not become a spin with timeout 0.
int poll_timeout(const Deadline& deadline) {
  const auto left = deadline.remaining(1h);
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

int family_of(int fd) {
  int family = AF_UNSPEC;
  socklen_t size = sizeof(family);
  REIGEN_SYSCALL(::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size));
  return family;
}

Address address_of(int fd, int (*ask)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  REIGEN_SYSCALL(ask(fd, reinterpret_cast<sockaddr*>(&storage), &size));
  return Address(reinterpret_cast<const sockaddr*>(&storage), size);
}

// Binds and listens. Returns 0, or the errno of the call that failed.
int bind_and_listen(const UniqueFd& fd, const Address& address) {
  // With SO_REUSEADDR a port whose last owner has just ended is free at once; a port with a listener remains taken.
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);  // only matters for "::"
  if (::bind(fd.get(), address.get(), address.size()) != 0) return errno;
  if (::listen(fd.get(), SOMAXCONN) != 0) return errno;
  return 0;
}

ExitCode exit_code_of_bind(int error) {
  if (error == EADDRINUSE || error == EADDRNOTAVAIL || error == EAFNOSUPPORT) return ExitCode::kUnavailable;
  return base::exit_code_of_errno(error);
}

std::string fix_of_bind(int error) {
  if (error == EADDRINUSE) return "another program listens there: end it, or choose another port";
  if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT)
    return "give an address of this machine, or 0.0.0.0 for all of them";
  if (error == EACCES || error == EPERM) return "ports below 1024 are reserved: choose a larger one";
  return "";
}

// The error's advice for a Unix socket, which has a name but neither port nor address.
std::string fix_of_named(int error) {
  return error == EADDRINUSE ? "another program of this machine has this name: end it, or choose another name" : "";
}

[[noreturn]] void throw_no_listener(const std::string& where, int error, const std::string& fix) {
  throw BackendError(
      Report{.what = fmt::format("cannot listen on {}", where), .got = base::errno_text(error), .fix = fix},
      exit_code_of_bind(error));
}

}  // namespace

bool would_block(int error) {
  // ENOBUFS and ENOMEM: the kernel has no memory at the moment. The connection is still good.
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS || error == ENOMEM;
}

std::string to_string(const Transfer& closed) {
  return closed.error == 0 ? "it closed the connection" : base::errno_text(closed.error);
}

bool wait_ready(int fd, short events, const Deadline& deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, poll_timeout(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) base::throw_system_error("poll", errno, __FILE__, __LINE__);
    if (deadline.expired()) return false;
  }
}

Socket::Socket(UniqueFd fd) : fd_(std::move(fd)) {
  if (family_of(fd_.get()) == AF_UNIX) return;  // Unix sockets do not have the options of TCP
  set_option(fd_.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
}

Address Socket::local_address() const { return address_of(fd_.get(), &::getsockname); }
Address Socket::peer_address() const { return address_of(fd_.get(), &::getpeername); }

Transfer Socket::read_some(std::span<char> into) {
  const ssize_t count = ::recv(fd_.get(), into.data(), into.size(), 0);
  if (count > 0) return {.bytes = static_cast<std::size_t>(count)};
  if (count < 0 && would_block(errno)) return {};
  return {.closed = true, .error = count < 0 ? errno : 0};
}

Transfer Socket::write_some(std::span<const char> from) {
  const ssize_t count = ::send(fd_.get(), from.data(), from.size(), MSG_NOSIGNAL);
  if (count >= 0) return {.bytes = static_cast<std::size_t>(count)};
  if (would_block(errno)) return {};
  return {.closed = true, .error = errno};
}

void Socket::write_all(std::span<const char> from, const Deadline& deadline) {
  while (!from.empty()) {
    const Transfer moved = write_some(from);
    if (moved.closed) throw ConnectionClosed(to_string(moved));
    from = from.subspan(moved.bytes);
    if (from.empty() || moved.bytes > 0) continue;
    if (!wait_ready(fd_.get(), POLLOUT, deadline)) throw Timeout("the other side does not take what is sent to it");
  }
}

void set_congestion_control(int fd, const std::string& name) {
  ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size()));
}

std::string congestion_control(int fd) {
  std::array<char, 32> name{};
  socklen_t size = name.size() - 1;
  ::getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size);
  return name.data();
}

void keep_alive(int fd, std::chrono::seconds idle) {
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(idle.count()));
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 20);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 9);
}

ConnectAttempt try_connect(const Address& address, const Deadline& deadline, const std::string& congestion) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return {.error = errno};
  if (!congestion.empty()) set_congestion_control(fd.get(), congestion);
  if (::connect(fd.get(), address.get(), address.size()) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return {.error = errno};
    if (!wait_ready(fd.get(), POLLOUT, deadline)) return {.error = ETIMEDOUT};
    int error = 0;
    socklen_t size = sizeof(error);
    REIGEN_SYSCALL(::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size));
    if (error != 0) return {.error = error};
  }
  // If no server listens on the port, and the port is in the kernel's range for clients, the socket can connect to
  // itself. Such a socket would keep the server from listening on the port.
  if (address.family() != AF_UNIX && address_of(fd.get(), &::getsockname) == address) return {.error = ECONNREFUSED};
  return {.socket = Socket(std::move(fd))};
}

void throw_cannot_listen(const std::string& where, int error) { throw_no_listener(where, error, fix_of_bind(error)); }

ListenAttempt try_listen(const std::string& host, std::uint16_t port) {
  int error = 0;
  for (const Address& address : resolve(host, port)) {
    UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    error = fd ? bind_and_listen(fd, address) : errno;
    if (error != 0) continue;
    const Address own = address_of(fd.get(), &::getsockname);
    return {.listener = Listener(std::move(fd), own)};
  }
  return {.error = error};
}

Listener::Listener(const std::string& host, std::uint16_t port) {
  ListenAttempt attempt = try_listen(host, port);
  if (!attempt.listener) throw_cannot_listen(endpoint_text(host, port), attempt.error);
  *this = *std::move(attempt.listener);
}

Listener::Listener(const Address& address) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int error = fd ? bind_and_listen(fd, address) : errno;
  if (error != 0) {
    throw_no_listener(address.to_string(), error,
                      address.family() == AF_UNIX ? fix_of_named(error) : fix_of_bind(error));
  }
  address_ = address_of(fd.get(), &::getsockname);
  fd_ = std::move(fd);
}

bool is_of_this_machine(const Address& address) {
  if (address.family() == AF_UNIX) return true;
  const UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return false;
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // so that this short bind keeps no other program from the port
  return ::bind(fd.get(), address.get(), address.size()) == 0 || (errno != EADDRNOTAVAIL && errno != EINVAL);
}

bool is_of_this_user(const Socket& socket) {
  if (family_of(socket.fd()) != AF_UNIX) return true;
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(socket.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
}

Accepted Listener::accept() {
  UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd) return {.socket = Socket(std::move(fd))};
  return {.exhausted = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM};
}

}  // namespace reigen::net
