// The process of another rank: how to name it, and whether it is alive, as far as this process can know.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "reigen/base/unique_fd.h"

namespace reigen::comm {

struct PeerProcess {
  std::string host = {};
  pid_t pid = 0;
  bool is_here = false;  // on this machine, perhaps in another container
  pid_t seen_as = 0;     // `pid` if this process can see the peer's process; 0 if not (another container)
  UniqueFd pidfd = {};   // set if this process can see the peer's process, and the two are different
};

// The process namespace of this process. A pid identifies a process only within one namespace.
std::uint64_t process_namespace();
// This process as one line of text for other ranks: host, pid, the namespace of the pid, and the machine.
std::string place_of_this_process();
// Returns the process that `place` describes. `place` is the line that place_of_this_process() returned in that
// process.
PeerProcess process_at(const std::string& place);

// Whether the process is known to have died. False for this process, and for processes that this process cannot see: in
// other containers and on other machines.
bool has_died(const PeerProcess& process);

}  // namespace reigen::comm
