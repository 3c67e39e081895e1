#include "base/machine/mps.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/environment.h"
#include "reigen/base/unique_fd.h"

namespace reigen::base {

std::string mps_folder() {
  std::error_code none;
  return get_environment(kMpsPipes).value_or((std::filesystem::temp_directory_path(none) / "nvidia-mps").string());
}

bool mps_daemon_listens(const std::string& folder) {
  const std::string path = folder + "/control";
  sockaddr_un address{};
  if (path.size() >= sizeof address.sun_path) return false;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return false;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  // EPROTOTYPE: the daemon's socket has another type. EAGAIN: its queue is full. A daemon listens in both cases.
  return errno == EPROTOTYPE || errno == EAGAIN;
}

}  // namespace reigen::base
