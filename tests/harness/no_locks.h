// Simulates a file system without locks: the flock() of this header replaces libc's in the program of a test. Include
// it in only one source of a program.
#pragma once

#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace reigen::tests {

inline std::atomic<int> lock_errno{0};  // the errno of flock(); 0: flock() works

struct NoLocks {
  explicit NoLocks(int error) { lock_errno = error; }
  ~NoLocks() { lock_errno = 0; }
};

}  // namespace reigen::tests

extern "C" int flock(int fd, int operation) noexcept {
  if (reigen::tests::lock_errno != 0) {
    errno = reigen::tests::lock_errno;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_flock, fd, operation));
}
