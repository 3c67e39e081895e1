// A library to be preloaded (LD_PRELOAD). It intercepts a program's operations on the files below one directory. An
// operation that changes files or makes them durable is an event, counted from 1: open that makes a file, write,
// ftruncate, fsync, rename, unlink, rmdir, mkdir.
//
//   REIGEN_FILES_BELOW=DIR     the directory's real path; operations elsewhere are passed through
//   REIGEN_FILES_LOG=FILE      records every event, so that tests/harness/recorded_files.h can replay it
//   REIGEN_FILES_AT=N          REIGEN_FILES_FAULT occurs from event N on
//   REIGEN_FILES_FAULT=kill    SIGKILL instead of the event (half of a write is done first)
//                      EIO, ENOSPC  the event fails, once with REIGEN_FILES_TIMES=1
//   REIGEN_FILES_NO_EXCHANGE=1 two names cannot be exchanged atomically, as over NFS
//
// One lock covers an event and its record, so that the order of the record is the real order.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct State {
  const std::string below = variable("REIGEN_FILES_BELOW");
  const long at = std::atol(variable("REIGEN_FILES_AT").c_str());
  const std::string fault = variable("REIGEN_FILES_FAULT");
  long times = variable("REIGEN_FILES_TIMES").empty() ? LONG_MAX : std::atol(variable("REIGEN_FILES_TIMES").c_str());
  const bool no_exchange = !variable("REIGEN_FILES_NO_EXCHANGE").empty();
  int log = -1;
  long events = 0;
  std::recursive_mutex mutex;

  State() {
    const std::string path = variable("REIGEN_FILES_LOG");
    if (path.empty()) return;
    log =
        static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  }
};

State& state() {
  static State* const kState = new State;
  return *kState;
}

bool is_below(const std::string& path) {
  const std::string& below = state().below;
  return !below.empty() && path.compare(0, below.size(), below) == 0 &&
         (path.size() == below.size() || path[below.size()] == '/');
}

std::string path_of(int fd) {
  char link[64];
  char path[PATH_MAX];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const auto size = ::readlink(link, path, sizeof(path));
  return size < 0 ? "" : std::string(path, static_cast<std::size_t>(size));
}

// The real path of a name. The last part of the name need not exist.
std::string path_of(int folder, const char* name) {
  std::string path = name;
  if (path.empty() || path[0] != '/') {
    char cwd[PATH_MAX];
    const std::string base = folder == AT_FDCWD ? (::getcwd(cwd, sizeof(cwd)) == nullptr ? "" : cwd) : path_of(folder);
    path = base + "/" + path;
  }
  const auto slash = path.find_last_of('/');
  char real[PATH_MAX];
  if (::realpath(path.substr(0, slash == 0 ? 1 : slash).c_str(), real) == nullptr) return path;
  return std::string(real) + path.substr(slash);
}

std::uint64_t inode_of(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

std::uint64_t inode_of(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? info.st_ino : 0;
}

std::string folder_of(const std::string& path) { return path.substr(0, path.find_last_of('/')); }
std::string name_of(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

// Writes an event: its kind, two inodes, a number, and two texts (or the bytes of a write).
void record(char kind, std::uint64_t one, std::uint64_t other, std::uint64_t number, const void* first,
            std::size_t first_size, const std::string& second) {
  if (state().log < 0) return;
  const std::uint64_t head[6] = {static_cast<std::uint64_t>(kind), one, other, number, first_size, second.size()};
  iovec parts[3] = {{const_cast<std::uint64_t*>(head), sizeof(head)},
                    {const_cast<void*>(first), first_size},
                    {const_cast<char*>(second.data()), second.size()}};
  if (::syscall(SYS_writev, state().log, parts, 3) < 0) std::abort();
}

void record(char kind, std::uint64_t one, std::uint64_t other, const std::string& first,
            const std::string& second = {}) {
  record(kind, one, other, 0, first.data(), first.size(), second);
}

// Counts an event. Returns true if the event must fail; errno then has the reason.
bool fails() {
  State& s = state();
  ++s.events;
  if (s.at == 0 || s.events < s.at || s.times <= 0) return false;
  if (s.fault == "kill") ::kill(::getpid(), SIGKILL);
  --s.times;
  errno = s.fault == "ENOSPC" ? ENOSPC : EIO;
  return true;
}

bool dies_next() { return state().fault == "kill" && state().events + 1 == state().at; }

int open_at(int folder, const char* name, int flags, mode_t mode) {
  const std::lock_guard lock(state().mutex);
  const std::string path = path_of(folder, name);
  const bool makes = (flags & O_CREAT) != 0 && is_below(path) && inode_of(path) == 0;
  if (makes && fails()) return -1;
  const auto fd = static_cast<int>(::syscall(SYS_openat, folder, name, flags, mode));
  if (fd >= 0 && makes) record('C', inode_of(folder_of(path)), inode_of(fd), name_of(path));
  if (fd >= 0 && !makes && (flags & O_TRUNC) != 0 && is_below(path)) record('T', inode_of(fd), 0, 0, nullptr, 0, "");
  return fd;
}

template <class Call>
int synchronise(int fd, const Call& call) {
  const std::lock_guard lock(state().mutex);
  const bool counts = is_below(path_of(fd));
  if (counts && fails()) return -1;
  const int result = call();
  if (result == 0 && counts) record('F', inode_of(fd), 0, "");
  return result;
}

int rename_at(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  const std::lock_guard lock(state().mutex);
  const std::string source = path_of(from_folder, from);
  const std::string target = path_of(to_folder, to);
  const bool counts = is_below(source) || is_below(target);
  if (counts && (flags & RENAME_EXCHANGE) != 0 && state().no_exchange) {
    errno = EINVAL;
    return -1;
  }
  if (counts && fails()) return -1;
  const auto result = static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  if (result == 0 && counts) {
    record((flags & RENAME_EXCHANGE) != 0 ? 'X' : 'R', inode_of(folder_of(source)), inode_of(folder_of(target)),
           name_of(source), name_of(target));
  }
  return result;
}

int unlink_at(int folder, const char* name, int flags) {
  const std::lock_guard lock(state().mutex);
  const std::string path = path_of(folder, name);
  const bool counts = is_below(path) && inode_of(path) != 0;
  if (counts && fails()) return -1;
  const auto result = static_cast<int>(::syscall(SYS_unlinkat, folder, name, flags));
  if (result == 0 && counts) record('U', inode_of(folder_of(path)), 0, name_of(path));
  return result;
}

}  // namespace

extern "C" {

int open(const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = static_cast<mode_t>((flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, int) : 0);
  va_end(rest);
  return open_at(AT_FDCWD, name, flags, mode);
}
int open64(const char* name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = static_cast<mode_t>((flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, int) : 0);
  va_end(rest);
  return open_at(AT_FDCWD, name, flags | O_LARGEFILE, mode);
}

ssize_t write(int fd, const void* bytes, size_t count) {
  const std::lock_guard lock(state().mutex);
  const bool counts = is_below(path_of(fd));
  if (counts && dies_next()) {
    if (::syscall(SYS_write, fd, bytes, count / 2) < 0) std::abort();
  }
  if (counts && fails()) return -1;
  const off_t at = counts ? ::lseek(fd, 0, SEEK_CUR) : 0;
  const auto done = static_cast<ssize_t>(::syscall(SYS_write, fd, bytes, count));
  if (done > 0 && counts)
    record('W', inode_of(fd), 0, static_cast<std::uint64_t>(at), bytes, static_cast<std::size_t>(done), "");
  return done;
}

int ftruncate(int fd, off_t size) noexcept {
  const std::lock_guard lock(state().mutex);
  const bool counts = is_below(path_of(fd));
  if (counts && fails()) return -1;
  const auto result = static_cast<int>(::syscall(SYS_ftruncate, fd, size));
  if (result == 0 && counts) record('T', inode_of(fd), 0, static_cast<std::uint64_t>(size), nullptr, 0, "");
  return result;
}

int fsync(int fd) {
  return synchronise(fd, [&] { return static_cast<int>(::syscall(SYS_fsync, fd)); });
}
int fdatasync(int fd) {
  return synchronise(fd, [&] { return static_cast<int>(::syscall(SYS_fdatasync, fd)); });
}

int rename(const char* from, const char* to) noexcept { return rename_at(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return rename_at(from_folder, from, to_folder, to, 0);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return rename_at(from_folder, from, to_folder, to, flags);
}

int unlink(const char* name) noexcept { return unlink_at(AT_FDCWD, name, 0); }
int unlinkat(int folder, const char* name, int flags) noexcept { return unlink_at(folder, name, flags); }
int rmdir(const char* name) noexcept { return unlink_at(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char* name) noexcept {
  if (unlink_at(AT_FDCWD, name, 0) == 0) return 0;
  return errno == EISDIR || errno == EPERM ? unlink_at(AT_FDCWD, name, AT_REMOVEDIR) : -1;
}

int mkdir(const char* name, mode_t mode) noexcept {
  const std::lock_guard lock(state().mutex);
  const std::string path = path_of(AT_FDCWD, name);
  const bool counts = is_below(path) && inode_of(path) == 0;
  if (counts && fails()) return -1;
  const auto result = static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, name, mode));
  if (result == 0 && counts) record('M', inode_of(folder_of(path)), inode_of(path), name_of(path));
  return result;
}

}  // extern "C"

// Writes the number of events. A test learns it from a run without a fault.
__attribute__((destructor)) static void tell_count() {
  const std::string path = variable("REIGEN_FILES_COUNT");
  if (path.empty()) return;
  const auto fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666));
  const std::string text = std::to_string(state().events);
  if (fd < 0 || ::syscall(SYS_write, fd, text.data(), text.size()) < 0) std::abort();
  ::syscall(SYS_close, fd);
}
