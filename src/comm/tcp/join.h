// How the ranks of a group find each other and connect.
//
// Every rank listens on a port that the kernel picks. It writes its addresses into the group's store: the addresses of
// all its interfaces, or only the loopback address if all ranks are in one network namespace. In each pair of ranks the
// higher rank connects to the lower rank. It tries one address of the lower rank after the other, and loopback first if
// both ranks are on one machine. It stops when a process answers with the secret word that the lower rank has chosen.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "net/socket.h"
#include "reigen/comm/communicator.h"

namespace reigen::comm::tcp {

// A lane is a set of connections that carries every kLanes-th call of a group. So kLanes calls can be in flight at
// once: one call may wait for the network while another call sends.
inline constexpr std::size_t kLanes = 2;

struct Neighbour {
  std::string host;
  pid_t pid = 0;                     // the rank's own getpid(), perhaps in another container or on another machine
  bool here = false;                 // whether the rank is on this machine
  pid_t seen_as = 0;                 // `pid` if this process can see the rank's process under that id; else 0
  std::vector<net::Socket> sockets;  // for control, for messages, then for each lane; empty for this rank
};

// Blocks until all ranks are connected with each other. Throws Timeout naming the missing ranks, and PeerLost for a
// rank that is stopped or has ended. Throws BackendError, with the addresses that were tried, when ranks cannot reach
// each other.
std::vector<Neighbour> join(const GroupOptions& options);

}  // namespace reigen::comm::tcp
