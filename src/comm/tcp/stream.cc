#include "comm/tcp/stream.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace reigen::comm::tcp {

namespace {

constexpr std::size_t kSpill = 4096;
constexpr std::size_t kPieces = 8;  // the most pieces of memory in one system call

// Removes `bytes` bytes from the front of the list, which begins at index `first`.
void consume(std::vector<iovec>& list, std::size_t& first, std::size_t bytes) {
  while (first < list.size() && bytes >= list[first].iov_len) bytes -= list[first++].iov_len;
  if (first == list.size()) {
    list.clear();
    first = 0;
    return;
  }
  list[first].iov_base = static_cast<char*>(list[first].iov_base) + bytes;
  list[first].iov_len -= bytes;
}

// Sends or receives through several pieces of memory at once. After EFAULT the kernel does not say which piece it
// cannot access. So this function then tries the first piece alone, and throws if that fails too.
ssize_t move(int fd, iovec* pieces, std::size_t count, bool sends) {
  msghdr message{};
  message.msg_iov = pieces;
  for (const std::size_t length : {count, std::size_t{1}}) {
    message.msg_iovlen = length;
    const ssize_t moved =
        sends ? ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) : ::recvmsg(fd, &message, MSG_DONTWAIT);
    if (moved >= 0 || errno != EFAULT) return moved;
  }
  throw UnreachableMemory(pieces[0], sends);
}

std::optional<tcp_info> info_of(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return info;
}

}  // namespace

UnreachableMemory::UnreachableMemory(const iovec& memory, bool sends)
    : InvalidArgument("the kernel cannot reach the memory of a call"), memory_(memory), sends_(sends) {}

void UnreachableMemory::throw_for(const Call& call, const std::string& what) const {
  std::string buffers;
  if (call.input != nullptr) buffers += fmt::format("; its input is at {}", call.input);
  if (call.output != nullptr) buffers += fmt::format("; its output is at {}", call.output);
  throw InvalidArgument(
      Report{.what = fmt::format("{}: the kernel cannot {} its memory", what, sends_ ? "read" : "write to"),
             .got = fmt::format("{} within {} bytes at {}{}", base::errno_text(EFAULT), memory_.iov_len,
                                memory_.iov_base, buffers),
             .expected = "memory of this machine that stays mapped until the call is complete",
             .fix = "copy what lies on a GPU first; do not shorten a file that is mapped"});
}

bool all_delivered(int fd, bool loopback) {
  int bytes = 0;
  if (::ioctl(fd, loopback ? SIOCOUTQNSD : SIOCOUTQ, &bytes) != 0 || bytes == 0) return true;
  const auto info = info_of(fd);
  return !info || info->tcpi_state == TCP_CLOSE;
}

Condition condition_of(int fd) {
  const auto info = info_of(fd);
  int unread = 0;
  if (!info || ::ioctl(fd, SIOCINQ, &unread) != 0) return {};
  return {.stands = info->tcpi_state == TCP_ESTABLISHED,
          .unread = unread > 0,
          .quiet = std::chrono::milliseconds(info->tcpi_last_data_recv)};
}

Stream::Stream(net::Socket socket, std::atomic<std::uint64_t>& total)
    : socket_(std::move(socket)), spilled_(kSpill), total_(&total) {}

void Stream::send(const void* data, std::size_t bytes) {
  if (bytes > 0) out_.push_back({const_cast<void*>(data), bytes});  // iovec has no const pointer
}

void Stream::receive(void* data, std::size_t bytes) {
  if (bytes > 0) in_.push_back({data, bytes});
}

bool Stream::push() {
  if (sends_done() || takes_nothing_) return false;
  const ssize_t count = move(fd(), out_.data() + out_first_, std::min(kPieces, out_.size() - out_first_), true);
  if (count > 0) {
    sent_ += static_cast<std::size_t>(count);
    total_->fetch_add(static_cast<std::size_t>(count), std::memory_order_relaxed);
    consume(out_, out_first_, static_cast<std::size_t>(count));
    return true;
  }
  if (count < 0 && !net::would_block(errno)) {
    takes_nothing_ = true;
    note(errno);
  }
  return false;
}

bool Stream::take_spilled() {
  bool moved = false;
  while (!receives_done() && spilled_begin_ < spilled_end_) {
    const iovec& next = in_[in_first_];
    const std::size_t bytes = std::min(next.iov_len, spilled_end_ - spilled_begin_);
    std::memcpy(next.iov_base, spilled_.data() + spilled_begin_, bytes);
    spilled_begin_ += bytes;
    consume(in_, in_first_, bytes);
    moved = true;
  }
  return moved;
}

bool Stream::pull() {
  if (receives_done()) return false;
  if (take_spilled()) return true;
  if (gives_nothing_) return false;
  std::array<iovec, kPieces + 1> pieces;
  std::size_t count = 0;
  std::size_t wanted = 0;
  for (std::size_t i = in_first_; i < in_.size() && count < kPieces; ++i) {
    wanted += in_[i].iov_len;
    pieces[count++] = in_[i];
  }
  if (count == in_.size() - in_first_) pieces[count++] = {spilled_.data(), kSpill};
  const ssize_t got = move(fd(), pieces.data(), count, false);
  if (got > 0) {
    const auto bytes = static_cast<std::size_t>(got);
    consume(in_, in_first_, std::min(bytes, wanted));
    spilled_begin_ = 0;
    spilled_end_ = bytes > wanted ? bytes - wanted : 0;
    return true;
  }
  note_end(got);
  return false;
}

bool Stream::silent() {
  if (spilled_begin_ < spilled_end_) return false;
  char next = 0;
  if (!gives_nothing_) {
    const ssize_t got = ::recv(fd(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
    note_end(got);
  }
  return gives_nothing_;
}

// Notes the end of the connection if a recv that returned `got` shows it. The kernel reports an error only once.
void Stream::note_end(ssize_t got) {
  if (got > 0 || (got < 0 && net::would_block(errno))) return;
  gives_nothing_ = true;
  if (got < 0) note(errno);
}

void Stream::note(int error) {
  if (error_ == 0) error_ = error;
}

std::chrono::nanoseconds Stream::unanswered() {
  const auto info = info_of(fd());
  int queued = 0;
  if (!info || info->tcpi_unacked == 0 || ::ioctl(fd(), SIOCOUTQ, &queued) != 0) {
    unanswered_since_.reset();
    return {};
  }
  const auto now = Deadline::Clock::now();
  const std::uint64_t acknowledged = sent_ - static_cast<std::uint64_t>(queued);
  if (!unanswered_since_ || acknowledged != acknowledged_) unanswered_since_ = now;
  acknowledged_ = acknowledged;
  // The age of the last acknowledgement alone is not enough, because after a long idle time it is always large.
  return std::min<std::chrono::nanoseconds>(now - *unanswered_since_,
                                            std::chrono::milliseconds(info->tcpi_last_ack_recv));
}

bool Stream::stuck() { return (!sends_done() && takes_nothing_) || (!receives_done() && silent()); }

void Stream::drop() {
  out_.clear();
  in_.clear();
  out_first_ = in_first_ = 0;
}

}  // namespace reigen::comm::tcp
