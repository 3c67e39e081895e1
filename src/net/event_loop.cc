#include "net/event_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace reigen::net {

EventLoop::EventLoop() : wake_fd_(REIGEN_SYSCALL(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  watch(wake_fd_.get(), POLLIN, [this](short) {
    std::uint64_t count = 0;
    // One read consumes the counts of all calls of wake() so far. So a later read may find nothing.
    [[maybe_unused]] const auto got = ::read(wake_fd_.get(), &count, sizeof(count));
  });
}

void EventLoop::watch(int fd, short events, Handler handler) {
  const bool added =
      watches_.emplace(fd, Watch{next_id_++, events, std::make_shared<const Handler>(std::move(handler))}).second;
  REIGEN_ASSERT(added, "descriptor {} is watched already", fd);
  changed_ = true;
}

void EventLoop::change(int fd, short events) {
  Watch& watch = watches_.at(fd);
  changed_ = changed_ || watch.events != events;
  watch.events = events;
}

void EventLoop::forget(int fd) {
  watches_.erase(fd);
  changed_ = true;
}

void EventLoop::run_once(const Deadline& deadline) {
  if (changed_) {
    polled_.clear();
    ids_.clear();
    for (const auto& [fd, watch] : watches_) {
      polled_.push_back({.fd = fd, .events = watch.events, .revents = 0});
      ids_.push_back(watch.id);
    }
    changed_ = false;
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining(std::chrono::hours(1)));
  const int ready = ::poll(polled_.data(), polled_.size(), static_cast<int>(left.count()));
  if (ready < 0 && errno != EINTR) base::throw_system_error("poll", errno, __FILE__, __LINE__);
  if (ready <= 0) return;
  for (std::size_t i = 0; i < polled_.size(); ++i) {
    if (polled_[i].revents == 0) continue;
    const auto found = watches_.find(polled_[i].fd);
    if (found == watches_.end() || found->second.id != ids_[i]) continue;
    const auto handler = found->second.handler;
    (*handler)(polled_[i].revents);
  }
}

void EventLoop::wake() {
  const std::uint64_t one = 1;
  // The write fails only if the counter is full, and a full counter wakes the loop anyway.
  [[maybe_unused]] const auto written = ::write(wake_fd_.get(), &one, sizeof(one));
}

}  // namespace reigen::net
