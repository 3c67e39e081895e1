// The network addresses and the identity of this machine. Thread rule: any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace reigen::net {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string host;       // numeric address
  bool loopback = false;
};

// The addresses of all interfaces that are up, loopback last, without link-local IPv6 addresses. If `wanted` is set,
// only the addresses of the interface with this name. Throws InvalidArgument if that interface has no address; the
// error lists all interfaces.
std::vector<InterfaceAddress> interface_addresses(const std::optional<std::string>& wanted);

// 127.0.0.1, or ::1 on a machine that does not have 127.0.0.1.
std::string loopback_address();

// Equal for all processes of one machine, also in its containers.
std::string machine_identity();

// Equal for all processes that reach each other through the loopback interface. These are the processes in one network
// namespace of one machine.
std::string network_identity();

}  // namespace reigen::net
