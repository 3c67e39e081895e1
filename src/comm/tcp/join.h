// How the ranks of a group find each other and connect.
//
// Every rank listens on a port that the kernel picks. It writes its addresses into the group's store: the addresses of
// all its interfaces, or only the loopback address if all ranks share one loopback. In each pair of ranks the higher
// rank connects to the lower rank. It tries loopback first if both are on one machine, then one address after the
// other, until a process answers with the word that only the right process knows.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "net/socket.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::tcp {

// A lane carries every kLanes-th call of a group, over its own connections. So kLanes calls can be in flight at once:
// one call may wait for the network while another call sends.
inline constexpr std::size_t kLanes = 2;

struct Neighbour {
  std::string host;
  pid_t pid = 0;                     // as the rank itself knows it, perhaps in another container or on another machine
  bool here = false;                 // on this machine
  pid_t seen_as = 0;                 // `pid` if this process can see the rank's process under that id; else 0
  std::vector<net::Socket> sockets;  // one for control, one for messages, then those of each lane; none to this rank
};

// Blocks until all ranks are connected with each other. Throws Timeout naming the missing ranks, and PeerLost for a
// rank that is stopped or has ended. Throws BackendError, with the addresses that were tried, when ranks cannot reach
// each other.
std::vector<Neighbour> join(const GroupOptions& options);

}  // namespace reigen::comm::tcp
