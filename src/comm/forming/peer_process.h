// Another rank's process: which one it is, and whether it lives, where that can be known.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "reigen/base/unique_fd.h"

namespace reigen::comm {

struct PeerProcess {
  std::string host = {};
  pid_t pid = 0;
  bool is_here = false;  // on this machine, in whatever container
  pid_t seen_as = 0;     // the same where this process can see it; else 0, as of another container
  UniqueFd pidfd = {};   // of processes of this machine, other than this one
};

// Process numbers mean the same in two processes of one namespace only.
std::uint64_t process_namespace();
// This process, for others: host, number, the namespace in which that number means something, and the machine.
std::string place_of_this_process();
PeerProcess process_at(const std::string& place);

// False also while it cannot be known: ranks of this process and of other machines.
bool has_died(const PeerProcess& process);

}  // namespace reigen::comm
