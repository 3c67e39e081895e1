// Another rank's process: which one it is, and whether it lives, where that can be known.
#pragma once

#include <sys/types.h>

#include <string>

#include "reigen/base/unique_fd.h"

namespace reigen::comm {

struct PeerProcess {
  std::string host = {};
  pid_t pid = 0;
  UniqueFd pidfd = {};  // of processes of this machine, other than this one
};

// This process, for others: host, number and the namespace in which that number means something.
std::string place_of_this_process();
PeerProcess process_at(const std::string& place);

// False also while it cannot be known: ranks of this process and of other machines.
bool has_died(const PeerProcess& process);

}  // namespace reigen::comm
