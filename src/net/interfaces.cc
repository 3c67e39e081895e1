#include "net/interfaces.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "base/check.h"
#include "base/machine/host_name.h"
#include "net/socket.h"

namespace reigen::net {

namespace {

std::optional<InterfaceAddress> address_of(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return std::nullopt;
  const int family = entry.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return std::nullopt;
  if (family == AF_INET6) {
    const auto* address = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) return std::nullopt;
  }
  std::array<char, NI_MAXHOST> host{};
  const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  if (::getnameinfo(entry.ifa_addr, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return std::nullopt;
  }
  return InterfaceAddress{entry.ifa_name, host.data(), (entry.ifa_flags & IFF_LOOPBACK) != 0};
}

std::string list_of(const std::vector<InterfaceAddress>& addresses) {
  std::vector<std::string> texts;
  for (const auto& a : addresses) texts.push_back(fmt::format("{} ({})", a.interface, a.host));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses(const std::optional<std::string>& wanted) {
  ifaddrs* first = nullptr;
  REIGEN_SYSCALL(::getifaddrs(&first));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (auto address = address_of(*entry)) all.push_back(std::move(*address));
  }
  std::stable_partition(all.begin(), all.end(), [](const InterfaceAddress& a) { return !a.loopback; });
  if (!wanted) return all;
  std::vector<InterfaceAddress> chosen;
  std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
               [&](const InterfaceAddress& a) { return a.interface == *wanted; });
  if (chosen.empty()) {
    throw InvalidArgument(Report{.what = "REIGEN_TCP_INTERFACE names no interface that is up and has an address",
                                 .got = *wanted,
                                 .expected = list_of(all),
                                 .fix = "take one of these names, or leave the variable out: all of them are tried"});
  }
  return chosen;
}

std::string loopback_address() {
  const auto is_here = [](const char* host) { return is_of_this_machine(resolve(host, 0).front()); };
  return !is_here("127.0.0.1") && is_here("::1") ? "::1" : "127.0.0.1";
}

std::string machine_identity() {
  std::string identity;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> identity;
  return identity.empty() ? base::host_name() : identity;
}

std::string network_identity() {
  std::error_code error;
  const std::filesystem::path space = std::filesystem::read_symlink("/proc/self/ns/net", error);
  return machine_identity() + (error ? "" : "/" + space.string());  // "net:[4026531840]"
}

}  // namespace reigen::net
