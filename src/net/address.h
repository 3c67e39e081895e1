// The address of a socket: an IPv4 or IPv6 address and a port, or the name of a Unix socket on this machine. Also finds
// the addresses of a host by its name.
// Thread rule: values, freely copied between threads; resolve() may be called from any thread.
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
  std::string problem = {};  // the reason why there is no address; empty if there is an address
};
// The same as resolve() (below), but returns `problem` instead of throwing, for callers that go on without an address.
Resolution try_resolve(const std::string& host, std::uint16_t port);

// All addresses of a host, in the system's order of preference. `host` is a name or a numeric address, IPv6 with or
// without brackets. For a name (never for a numeric address) the name service is asked, which may take seconds. Throws
// BackendError when the name cannot be found at the moment, InvalidArgument when `host` is empty.
std::vector<Address> resolve(const std::string& host, std::uint16_t port);

// The address of a Unix socket in Linux's abstract namespace: a name on this machine instead of an address and a port.
// Such names are not files. Each network namespace has its own names. A name is free again when its socket is closed.
// `name`: at most 100 bytes.
Address machine_address(const std::string& name);

// "host:port" as people write it, with brackets around a numeric IPv6 address.
std::string endpoint_text(const std::string& host, std::uint16_t port);

struct Endpoint {
  std::string host;  // with its brackets, if it has any
  std::uint16_t port = 0;
};
// Parses the text that endpoint_text() writes. Returns nothing if the text has no host, or no port from 1 to 65535.
std::optional<Endpoint> parse_endpoint(std::string_view text);

}  // namespace reigen::net
