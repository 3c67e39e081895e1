#include "comm/forming/peer_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <sstream>

#include "base/machine/host_name.h"
#include "net/interfaces.h"

namespace reigen::comm {

std::uint64_t process_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0;
}

std::string place_of_this_process() {
  return fmt::format("{} {} {} {}", base::host_name(), ::getpid(), process_namespace(), net::machine_identity());
}

PeerProcess process_at(const std::string& place) {
  std::istringstream in(place);
  PeerProcess process;
  std::uint64_t space = 0;
  std::string machine;
  in >> process.host >> process.pid >> space >> machine;
  process.is_here = machine == net::machine_identity();
  if (process.is_here && space == process_namespace()) process.seen_as = process.pid;
  if (process.seen_as != 0 && process.pid != ::getpid()) {
    process.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  }
  return process;
}

bool has_died(const PeerProcess& process) {
  pollfd poll{process.pidfd.get(), POLLIN, 0};
  return process.pidfd && ::poll(&poll, 1, 0) == 1;
}

}  // namespace reigen::comm
