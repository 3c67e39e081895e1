#include "comm/tcp/stream.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace reigen::comm::tcp {

namespace {

constexpr std::size_t kSpill = 4096;
constexpr std::size_t kPieces = 8;  // handed to the kernel at once

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// Takes `bytes` from the front of the list.
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

}  // namespace

bool all_delivered(int fd, bool loopback) {
  int bytes = 0;
  if (::ioctl(fd, loopback ? SIOCOUTQNSD : SIOCOUTQ, &bytes) != 0 || bytes == 0) return true;
  tcp_info info{};
  socklen_t size = sizeof(info);
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_state == TCP_CLOSE;
}

Stream::Stream(net::Socket socket) : socket_(std::move(socket)), spilled_(kSpill) {}

void Stream::send(const void* data, std::size_t bytes) {
  if (bytes > 0) out_.push_back({const_cast<void*>(data), bytes});  // iovec knows no const
}

void Stream::receive(void* data, std::size_t bytes) {
  if (bytes > 0) in_.push_back({data, bytes});
}

bool Stream::push() {
  if (sends_done() || takes_nothing_) return false;
  msghdr message{};
  message.msg_iov = out_.data() + out_first_;
  message.msg_iovlen = std::min(kPieces, out_.size() - out_first_);
  const ssize_t count = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count > 0) {
    consume(out_, out_first_, static_cast<std::size_t>(count));
    return true;
  }
  if (count < 0 && !would_block(errno)) takes_nothing_ = true;
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
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = count;
  const ssize_t got = ::recvmsg(fd(), &message, MSG_DONTWAIT);
  if (got > 0) {
    const auto bytes = static_cast<std::size_t>(got);
    consume(in_, in_first_, std::min(bytes, wanted));
    spilled_begin_ = 0;
    spilled_end_ = bytes > wanted ? bytes - wanted : 0;
    return true;
  }
  if (got == 0 || !would_block(errno)) gives_nothing_ = true;
  return false;
}

bool Stream::silent() {
  if (spilled_begin_ < spilled_end_) return false;
  char next = 0;
  if (!gives_nothing_) {
    const ssize_t got = ::recv(fd(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
    // The kernel tells an error once.
    gives_nothing_ = got == 0 || (got < 0 && !would_block(errno));
  }
  return gives_nothing_;
}

bool Stream::stuck() { return (!sends_done() && takes_nothing_) || (!receives_done() && silent()); }

void Stream::drop() {
  out_.clear();
  in_.clear();
  out_first_ = in_first_ = 0;
}

}  // namespace reigen::comm::tcp
