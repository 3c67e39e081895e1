// Where a socket can be reached: IPv4 or IPv6 address and port, or a name on this machine, and how a host's name
// becomes one. Thread rule: values; resolve() may be called from any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace reigen::net {

class Address {
 public:
  Address() = default;
  Address(const sockaddr* address, socklen_t size);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  int family() const { return storage_.ss_family; }
  std::uint16_t port() const;
  std::string to_string() const;  // "10.0.0.1:4711", "[::1]:4711", "socket NAME"
  std::string host() const;       // "10.0.0.1", "::1"
  bool is_loopback() const;       // 127.0.0.0/8, ::1
  bool is_unspecified() const;    // 0.0.0.0, ::

  friend bool operator==(const Address& left, const Address& right) { return left.to_string() == right.to_string(); }

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

struct Resolution {
  std::vector<Address> addresses = {};
  std::string problem = {};  // not empty: why there is no address
};
// As resolve(), for those who go on without an address.
Resolution try_resolve(const std::string& host, std::uint16_t port);

// Every address of a name, in the order in which the system prefers them. `host` is a name or a numeric address, IPv6
// with or without brackets. Asks the name service, which may take seconds for a name (never for a number). Throws
// BackendError when the name is not known (now), InvalidArgument when it is empty.
std::vector<Address> resolve(const std::string& host, std::uint16_t port);

// A socket of this machine that has a name instead of an address and a port: Linux keeps such names apart from files,
// one list for each network namespace, and forgets them with the socket. `name`: at most 100 bytes.
Address machine_address(const std::string& name);

// "host:port" as people write it, with brackets around a numeric IPv6 address.
std::string endpoint_text(const std::string& host, std::uint16_t port);

struct Endpoint {
  std::string host;  // brackets stay
  std::uint16_t port = 0;
};
// What endpoint_text() writes; nothing where there is no host or no port from 1 to 65535.
std::optional<Endpoint> parse_endpoint(std::string_view text);

}  // namespace reigen::net
