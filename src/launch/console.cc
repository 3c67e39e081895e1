#include "launch/console.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace reigen::launch {

namespace {

// If poll reports a pipe as writable, this many bytes (PIPE_BUF) can be written without blocking. A terminal accepts as
// many.
constexpr std::size_t kWriteSize = 4096;

// With automatic wrapping off the terminal cuts a line at its edge, so that the launcher need not know how wide the
// line's characters are.
constexpr std::string_view kClearLine = "\r\033[K";
constexpr std::string_view kNoWrap = "\033[?7l";
constexpr std::string_view kWrap = "\033[?7h";

bool same_file(int a, int b) {
  struct stat of_a {};
  struct stat of_b {};
  if (::fstat(a, &of_a) != 0 || ::fstat(b, &of_b) != 0) return false;
  return of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

}  // namespace

Console::Console(int output, int error)
    : descriptors_{output, error},
      terminals_{::isatty(output) == 1, ::isatty(error) == 1},
      one_place_(same_file(output, error)) {}

int Console::columns() const {
  winsize size{};
  if (::ioctl(descriptors_[0], TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

bool Console::shares_terminal(Stream stream) const { return stream == Stream::kOutput || terminals_[1]; }

std::uint64_t Console::line(Stream stream, std::string_view prefix, std::string_view text) {
  if (shares_terminal(stream)) clear_progress();
  std::string bytes(prefix);
  bytes += text;
  bytes += '\n';
  push(stream, bytes);
  const bool with_errors = stream == Stream::kError || one_place_;
  return with_errors ? ++lines_with_errors_ : 0;
}

void Console::part(Stream stream, std::string_view text) {
  if (shares_terminal(stream)) clear_progress();
  push(stream, text);
}

void Console::progress(std::string_view prefix, std::string_view text) {
  if (!terminals_[0]) return;
  std::string bytes(kClearLine);
  bytes += kNoWrap;
  bytes += prefix;
  bytes += text;
  bytes += kWrap;
  push(Stream::kOutput, bytes);
  progress_shown_ = true;
}

void Console::clear_progress() {
  if (progress_shown_) push(Stream::kOutput, kClearLine);
  progress_shown_ = false;
}

void Console::push(Stream stream, std::string_view bytes) {
  if (is_closed(stream) || lost_[static_cast<std::size_t>(stream)] || bytes.empty()) return;
  queued_ += bytes.size();
  const bool extend = queue_.size() > (written_ > 0 ? 1U : 0U) && queue_.back().stream == stream &&
                      queue_.back().bytes.size() < 16 * kWriteSize;
  if (extend) {
    queue_.back().bytes += bytes;
  } else {
    queue_.push_back({stream, std::string(bytes)});
  }
}

int Console::waits_for() const {
  return queue_.empty() ? -1 : descriptors_[static_cast<std::size_t>(queue_.front().stream)];
}

void Console::write_some() {
  if (queue_.empty()) return;
  const Chunk& chunk = queue_.front();
  const std::size_t size = std::min(kWriteSize, chunk.bytes.size() - written_);
  const ssize_t done = ::write(waits_for(), chunk.bytes.data() + written_, size);
  if (done < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (done < 0) {
    // This stream cannot be written any more. The other stream is still written. If the reader of this stream is gone
    // (EPIPE), the ranks' pipes are closed too, so that the ranks get EPIPE as they would without a launcher. If the
    // disk is full or the terminal hung up, the ranks go on without output. Their next line must not end them, because
    // they must be able to save their state.
    const auto stream = static_cast<std::size_t>(chunk.stream);
    const bool hung_up = errno == EIO && terminals_[stream];
    (errno == EPIPE ? closed_ : lost_)[stream] = true;
    if (errno != EPIPE && !hung_up) write_error_ = errno;
  }
  written_ += done < 0 ? chunk.bytes.size() - written_ : static_cast<std::size_t>(done);
  if (written_ < chunk.bytes.size()) return;
  queued_ -= chunk.bytes.size();
  queue_.pop_front();
  written_ = 0;
}

}  // namespace reigen::launch
