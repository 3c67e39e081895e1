// The addresses at which rank 0 listens, and at which the other ranks look for rank 0. Both follow from values that the
// launcher gives to all ranks alike.
#pragma once

#include <string>
#include <vector>

#include "reigen/launch/environment.h"

namespace reigen::launch {

// For rank 0: the numeric addresses of this machine on which rank 0 listens, at least one, each once. Rank 0 itself
// connects to the first address. The list contains the addresses of this machine to which master_address resolves here.
// If all ranks are on this machine, or every rank reads master_address as its own machine (means_one_host()), the list
// also contains the loopback. Otherwise the list also contains the loopback and every address of this machine, because
// other ranks may resolve master_address to another of these addresses. "0.0.0.0" or "::" is in the list only if it was
// given as master_address. Warns if master_address names another machine, or a host without an address, because the
// other ranks look for rank 0 there.
std::vector<std::string> places_to_listen(const Environment& environment);

// For the other ranks: hosts in the order in which they are tried. The loopback comes first if the launcher says that
// rank 0 is on this machine.
std::vector<std::string> places_to_look(const Environment& environment);

// True for an address that means the reader's own machine (the loopback), so that all ranks that get this address are
// on one machine. False for `localhost` in a pod of Kubernetes: Kubernetes' training operators give the address
// `localhost` to rank 0, and the name of rank 0's pod to the other ranks.
bool means_one_host(const std::string& address);

// Numeric addresses of this machine, without the loopback.
std::vector<std::string> addresses_of_this_machine();

// The name of the Unix socket through which the ranks of a job on this machine connect to rank 0.
std::string socket_of_job(const std::string& job);

}  // namespace reigen::launch
