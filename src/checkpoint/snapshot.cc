#include "checkpoint/snapshot.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "comm/reduce/reduce.h"

namespace reigen::checkpoint {

namespace {

constexpr std::size_t kLine = 64;

std::size_t rounded(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

Snapshot::~Snapshot() {
  if (memory_ != nullptr) ::munmap(memory_, size_);
}

std::size_t Snapshot::bytes_for(const Contents& contents) {
  std::size_t needed = 0;
  for (const auto& [group, pieces] : contents) {
    for (const Piece& piece : pieces) needed += rounded(piece.bytes.size());
  }
  return needed;
}

void Snapshot::take(std::size_t bytes) {
  if (bytes <= size_) return;
  if (memory_ != nullptr) ::munmap(memory_, size_);
  memory_ = nullptr;
  size_ = 0;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw IoError(Report{.what = fmt::format("no memory for a copy of {} bytes to save", bytes),
                         .got = base::errno_text(errno),
                         .fix = "save without asynchronous"},
                  ExitCode::kOsResource);
  }
  ::madvise(memory, bytes, MADV_HUGEPAGE);  // a hint to the kernel, for fewer page faults
  memory_ = static_cast<std::byte*>(memory);
  size_ = bytes;
}

void Snapshot::reserve(std::size_t bytes) {
  take(bytes);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  for (std::size_t at = 0; at < size_; at += page) *static_cast<volatile std::byte*>(memory_ + at) = std::byte{0};
}

Contents Snapshot::copy(const Contents& contents) {
  take(bytes_for(contents));
  Contents copied = contents;
  std::byte* at = memory_;
  for (auto& [group, pieces] : copied) {
    for (Piece& piece : pieces) {
      // Non-temporal stores: only the writing thread reads the copy, and only later. So the copy need not displace
      // other data in the caches.
      comm::reduce::copy_streaming(at, piece.bytes.data(), piece.bytes.size());
      piece.bytes = {at, piece.bytes.size()};
      at += rounded(piece.bytes.size());
    }
  }
  return copied;
}

}  // namespace reigen::checkpoint
