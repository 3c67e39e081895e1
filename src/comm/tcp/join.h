// How the ranks of a group find and call each other.
//
// Every rank listens on a port that the kernel picks and writes into the group's store where it can be reached: the
// addresses of all its interfaces, or the loopback alone where all ranks share it. Of each pair the higher rank calls:
// loopback first when both are on one machine, then one address after the other, until one answers with the word that
// only the right process knows.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "net/socket.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::tcp {

// A lane carries every kLanes-th call of a group over connections of its own, so that so many calls are under way at
// once: one may wait for the network while another one sends.
inline constexpr std::size_t kLanes = 2;

struct Neighbour {
  std::string host;
  pid_t pid = 0;
  bool here = false;                 // on this machine
  pid_t seen_as = 0;                 // there: its process, where this one can see it; else 0
  std::vector<net::Socket> sockets;  // control, messages, then those of each lane; none for the own rank
};

// Blocks until all ranks are connected with each other. Throws Timeout naming who did not come, PeerLost for a rank
// that is stopped, BackendError when ranks do not reach each other, with the addresses that were tried.
std::vector<Neighbour> join(const GroupOptions& options);

}  // namespace reigen::comm::tcp
