// How this machine can be reached. Thread rule: any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace reigen::comm::tcp {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string host;       // numeric
  bool loopback = false;
};

// Addresses of all interfaces that are up, loopback last; without IPv6 addresses that hold on one wire only. `wanted`:
// those of one interface, by its name. Throws InvalidArgument, listing what there is, when there is none of it.
std::vector<InterfaceAddress> interface_addresses(const std::optional<std::string>& wanted);

// The same for all processes of one machine, containers on it too.
std::string machine_identity();

}  // namespace reigen::comm::tcp
