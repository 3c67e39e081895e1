// Where a socket can be reached: IPv4 or IPv6 address and port, and how a host's name becomes one.
// Thread rule: values; resolve() may be called from any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
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
  std::string to_string() const;  // "10.0.0.1:4711", "[::1]:4711"

  friend bool operator==(const Address& left, const Address& right) { return left.to_string() == right.to_string(); }

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

// Every address of a name, in the order in which the system prefers them. `host` is a name or a numeric address, IPv6
// with or without brackets. Asks the name service, which may take seconds for a name (never for a number). Throws
// BackendError when the name is not known (now), InvalidArgument when it is empty.
std::vector<Address> resolve(const std::string& host, std::uint16_t port);

// "host:port" as people write it, with brackets around a numeric IPv6 address.
std::string endpoint_text(const std::string& host, std::uint16_t port);

}  // namespace reigen::net
