#include "train/files/appended_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "base/check.h"
#include "reigen/format/atomic_file.h"

namespace reigen::train {

namespace {

constexpr auto kFlushEvery = std::chrono::milliseconds(500);
constexpr std::size_t kBufferMax = 1 << 16;
constexpr std::size_t kKeptMax = std::size_t{64} << 20;  // most bytes kept while the file cannot be written

std::string read_all(int fd) {
  std::string text;
  std::vector<char> block(1 << 16);
  for (;;) {
    const auto got = REIGEN_SYSCALL(::read(fd, block.data(), block.size()));
    if (got == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(got));
  }
}

UniqueFd open_file(const std::filesystem::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) {
    const int error = errno;
    throw IoError(fmt::format("cannot write {}: {}", path.string(), base::errno_text(error)),
                  error == EACCES || error == EPERM || error == EROFS ? ExitCode::kPermission : ExitCode::kIo);
  }
  return fd;
}

}  // namespace

AppendedFile::Kept first_lines(std::function<bool(std::string_view line)> keep) {
  return [keep = std::move(keep)](std::string_view text) {
    std::size_t length = 0;
    for (;;) {
      const auto end = text.find('\n', length);
      if (end == std::string_view::npos || !keep(text.substr(length, end - length))) return length;
      length = end + 1;
    }
  };
}

AppendedFile::AppendedFile(std::filesystem::path path, const Kept& kept)
    : path_(std::move(path)), fd_(open_file(path_)), flushed_(std::chrono::steady_clock::now()) {
  const std::size_t length = kept ? kept(read_all(fd_.get())) : 0;
  REIGEN_SYSCALL(::ftruncate(fd_.get(), static_cast<off_t>(length)));
  REIGEN_SYSCALL(::lseek(fd_.get(), 0, SEEK_END));
}

AppendedFile::~AppendedFile() {
  try {
    flush();
  } catch (const Error&) {
    // Before a normal end a run calls flush() itself, and that call has reported the error.
  }
}

void AppendedFile::append(std::string_view record) {
  buffer_ += record;
  const bool is_due = std::chrono::steady_clock::now() - flushed_ >= kFlushEvery;
  if (!is_due && (buffer_.size() < kBufferMax || !trouble_.empty())) return;
  try {
    flush();
  } catch (const IoError&) {
    // The records stay in the buffer and the run goes on, because a run is worth more than its log, and the disk may
    // have room again later.
    if (buffer_.size() > kKeptMax) throw;
  }
}

void AppendedFile::flush() {
  flushed_ = std::chrono::steady_clock::now();
  std::size_t done = 0;
  int failed = 0;
  while (done < buffer_.size() && failed == 0) {
    const auto written = ::write(fd_.get(), buffer_.data() + done, buffer_.size() - done);
    if (written >= 0)
      done += static_cast<std::size_t>(written);
    else if (errno != EINTR)
      failed = errno;
  }
  buffer_.erase(0, done);
  trouble_.clear();
  if (failed == 0) return;
  trouble_ = fmt::format("cannot write {}: {}", path_.string(), base::errno_text(failed));
  if (failed == ENOSPC || failed == EDQUOT) throw NoRoom(trouble_);
  throw IoError(trouble_);
}

}  // namespace reigen::train
