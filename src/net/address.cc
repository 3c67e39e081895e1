#include "net/address.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "reigen/base/error.h"

namespace reigen::net {

namespace {

std::string without_brackets(const std::string& host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') return host.substr(1, host.size() - 2);
  return host;
}

// The name of a Unix socket; empty if it has none.
std::string name_of(const sockaddr_un* address, socklen_t size) {
  constexpr std::size_t kStart = offsetof(sockaddr_un, sun_path) + 1;
  return size > kStart ? std::string(address->sun_path + 1, size - kStart) : "";
}

}  // namespace

Address::Address(const sockaddr* address, socklen_t size) : size_(size) {
  REIGEN_ASSERT(size <= sizeof(storage_), "socket address of {} bytes", size);
  std::memcpy(&storage_, address, size);
}

std::uint16_t Address::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  return 0;
}

std::string Address::to_string() const {
  if (family() == AF_UNIX) return "socket " + name_of(reinterpret_cast<const sockaddr_un*>(&storage_), size_);
  return endpoint_text(host(), port());
}

std::string Address::host() const {
  std::array<char, NI_MAXHOST> host{};
  if (::getnameinfo(get(), size_, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "(no address)";
  return host.data();
}

bool Address::is_loopback() const {
  if (family() == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

bool Address::is_unspecified() const {
  if (family() == AF_INET) return reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr == INADDR_ANY;
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

Resolution try_resolve(const std::string& host, std::uint16_t port) {
  REIGEN_CHECK(!host.empty(), "a host name is missing\n  expected: a name, an IPv4 or an IPv6 address");
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(without_brackets(host).c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return {.problem = error == EAI_SYSTEM ? base::errno_text(errno) : ::gai_strerror(error)};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  Resolution resolution;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    resolution.addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
  }
  return resolution;
}

std::vector<Address> resolve(const std::string& host, std::uint16_t port) {
  Resolution resolution = try_resolve(host, port);
  if (resolution.problem.empty()) return std::move(resolution.addresses);
  throw BackendError(Report{.what = fmt::format("cannot find the address of host '{}'", host),
                            .got = resolution.problem,
                            .fix = "check the spelling, /etc/hosts and the name service, or give a numeric address"});
}

Address machine_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REIGEN_ASSERT(!name.empty() && name.size() + 1 < sizeof(address.sun_path), "socket name of {} bytes", name.size());
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // a zero before the name makes it abstract
  return Address(reinterpret_cast<const sockaddr*>(&address),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
}

std::string endpoint_text(const std::string& host, std::uint16_t port) {
  const std::string bare = without_brackets(host);
  return bare.find(':') == std::string::npos ? fmt::format("{}:{}", bare, port) : fmt::format("[{}]:{}", bare, port);
}

std::optional<Endpoint> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  const auto port = base::parse<std::uint16_t>(text.substr(colon + 1));
  if (!port || *port == 0) return std::nullopt;
  return Endpoint{.host = std::string(text.substr(0, colon)), .port = *port};
}

}  // namespace reigen::net
