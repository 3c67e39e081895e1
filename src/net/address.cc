#include "net/address.h"

#include <fmt/format.h>
#include <netdb.h>

#include <array>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "reigen/base/error.h"

namespace reigen::net {

namespace {

std::string without_brackets(const std::string& host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') return host.substr(1, host.size() - 2);
  return host;
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
  std::array<char, NI_MAXHOST> host{};
  if (::getnameinfo(get(), size_, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "(no address)";
  return endpoint_text(host.data(), port());
}

std::vector<Address> resolve(const std::string& host, std::uint16_t port) {
  REIGEN_CHECK(!host.empty(), "a host name is missing\n  expected: a name, an IPv4 or an IPv6 address");
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(without_brackets(host).c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    const std::string reason = error == EAI_SYSTEM ? base::errno_text(errno) : ::gai_strerror(error);
    throw BackendError(Report{.what = fmt::format("cannot find the address of host '{}'", host),
                              .got = reason,
                              .fix = "check the spelling, /etc/hosts and the name service, or give a numeric address"});
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
  }
  return addresses;
}

std::string endpoint_text(const std::string& host, std::uint16_t port) {
  const std::string bare = without_brackets(host);
  return bare.find(':') == std::string::npos ? fmt::format("{}:{}", bare, port) : fmt::format("[{}]:{}", bare, port);
}

}  // namespace reigen::net
