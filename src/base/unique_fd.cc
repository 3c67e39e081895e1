#include "reigen/base/unique_fd.h"

#include <unistd.h>

namespace reigen {

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace reigen
