#include "comm/shared_memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/check.h"
#include "base/machine/available_memory.h"
#include "reigen/base/bytes.h"
#include "reigen/base/unique_fd.h"

namespace reigen::comm::shared_memory {

namespace {

// The table of the segments that ranks of this process have made, by inode. All ranks of the process use one table, so
// that they share one mapping of each segment.
std::mutex& table_mutex() {
  // The mutex and the table are never destroyed, because blocks in global variables may outlive other static objects.
  static auto& mutex = *new std::mutex;
  return mutex;
}
std::map<std::uint64_t, std::weak_ptr<Segment>>& table_of_mappings() {
  static auto& table = *new std::map<std::uint64_t, std::weak_ptr<Segment>>;
  return table;
}

std::uint64_t inode_of(int fd) {
  struct stat status {};
  REIGEN_SYSCALL(::fstat(fd, &status));
  return static_cast<std::uint64_t>(status.st_ino);
}

[[noreturn]] void throw_no_memory(std::size_t size, const std::string& why) {
  throw IoError(
      Report{.what = fmt::format("no shared memory: {}", why),
             .got = {},
             .expected = fmt::format("{} more", format_bytes(size)),
             .fix = "start fewer ranks, take a smaller model or batch, or raise the memory limit (free -h, ulimit -a)"},
      ExitCode::kOsResource);
}

[[noreturn]] void throw_no_memory_file(int error) {
  const bool few = error == EMFILE || error == ENFILE;
  const std::string fix =
      few ? "raise the number of open files (ulimit -n)"
          : "allow memfd_create in the sandbox or container, or take another backend than shared_memory";
  throw IoError(Report{.what = fmt::format("no shared memory: memfd_create: {}", base::errno_text(error)),
                       .got = {},
                       .expected = "a memory file",
                       .fix = fix},
                error == ENOSYS ? ExitCode::kUnavailable : base::exit_code_of_errno(error));
}

// Allocates in pieces. If a signal interrupts posix_fallocate, only one piece must be allocated again.
void take_memory(int fd, std::size_t size) {
  constexpr std::size_t kPiece = 64 * kMiB;
  for (std::size_t begin = 0; begin < size;) {
    const std::size_t bytes = std::min(kPiece, size - begin);
    const int error = ::posix_fallocate(fd, static_cast<off_t>(begin), static_cast<off_t>(bytes));
    if (error == 0) {
      begin += bytes;
    } else if (error != EINTR) {
      throw_no_memory(size, base::errno_text(error));
    }
  }
}

// The file remains open as long as it is mapped, because other processes open it through this process's descriptor
// (/proc/PID/fd).
std::shared_ptr<void> map_file(UniqueFd fd, std::size_t size) {
  void* mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (mapped == MAP_FAILED) throw_no_memory(size, base::errno_text(errno));
  const auto file = std::make_shared<UniqueFd>(std::move(fd));
  return {mapped, [file, size](void* begin) { ::munmap(begin, size); }};
}

}  // namespace

Segment::Segment(std::shared_ptr<void> memory, const SegmentAddress& address)
    : address_(address),
      memory_(std::move(memory)),
      data_(static_cast<std::byte*>(memory_.get())),
      size_(address.size) {}

Segment::~Segment() {
  {
    std::lock_guard lock(table_mutex());
    const auto it = table_of_mappings().find(address_.inode);
    if (it != table_of_mappings().end() && it->second.expired()) table_of_mappings().erase(it);
  }
}

std::shared_ptr<Segment> Segment::of(std::shared_ptr<void> memory, const SegmentAddress& address) {
  std::shared_ptr<Segment> segment(new Segment(std::move(memory), address));
  if (address.pid != static_cast<std::int32_t>(::getpid())) return segment;
  std::lock_guard lock(table_mutex());
  table_of_mappings()[address.inode] = segment;
  return segment;
}

std::shared_ptr<Segment> Segment::here(const SegmentAddress& address) {
  std::lock_guard lock(table_mutex());
  const auto it = table_of_mappings().find(address.inode);
  std::shared_ptr<Segment> segment = it == table_of_mappings().end() ? nullptr : it->second.lock();
  if (segment == nullptr)
    throw IoError("shared memory of a rank of this process is gone: its communicator was destroyed",
                  ExitCode::kPeerLost);
  return segment;
}

std::shared_ptr<Segment> Segment::create(std::size_t size) {
  // Refuses a request for more memory than is available. The kernel would not refuse it, but would kill some process
  // later.
  if (const auto available = base::available_memory(); !available.source.empty() && size > available.bytes) {
    throw_no_memory(size, fmt::format("{} left ({})", format_bytes(available.bytes), available.source));
  }
  UniqueFd fd(::memfd_create("reigen", MFD_CLOEXEC));
  if (!fd) throw_no_memory_file(errno);
  take_memory(fd.get(), size);
  SegmentAddress address;
  address.pid = static_cast<std::int32_t>(::getpid());
  address.fd = fd.get();
  address.inode = inode_of(fd.get());
  address.size = size;
  return of(map_file(std::move(fd), size), address);
}

std::shared_ptr<Segment> Segment::open(const SegmentAddress& address) {
  if (address.pid == static_cast<std::int32_t>(::getpid())) return here(address);
  const std::string path = fmt::format("/proc/{}/fd/{}", address.pid, address.fd);
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) {
    const int error = errno;
    throw IoError(Report{.what = fmt::format("cannot open the shared memory of process {}: {}", address.pid,
                                             base::errno_text(error)),
                         .got = path,
                         .expected = "a process of the same user, machine and container",
                         .fix = "start all ranks on one machine by one user, or use a network backend"},
                  error == ENOENT ? ExitCode::kPeerLost : base::exit_code_of_errno(error));
  }
  UniqueFd fd(opened);
  const std::uint64_t inode = inode_of(fd.get());
  struct stat status {};
  REIGEN_SYSCALL(::fstat(fd.get(), &status));
  if (inode != address.inode || static_cast<std::uint64_t>(status.st_size) != address.size) {
    throw IoError(
        fmt::format(
            "descriptor {} of process {} is not the shared memory it announced: the ranks are on different machines, "
            "or the process was replaced",
            address.fd, address.pid),
        ExitCode::kUnavailable);
  }
  return of(map_file(std::move(fd), address.size), address);
}

}  // namespace reigen::comm::shared_memory
