// How this machine can be reached. Thread rule: any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace reigen::net {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string host;       // numeric
  bool loopback = false;
};

// Addresses of all interfaces that are up, loopback last; without IPv6 addresses that hold on one wire only. `wanted`:
// those of one interface, by its name. Throws InvalidArgument, listing what there is, when there is none of it.
std::vector<InterfaceAddress> interface_addresses(const std::optional<std::string>& wanted);

// 127.0.0.1, or ::1 on a machine without it.
std::string loopback_address();

// The same for all processes of one machine, containers on it too.
std::string machine_identity();

// The same for all processes that reach each other through the loopback: one machine, and one network namespace on it.
std::string network_identity();

}  // namespace reigen::net
