// A loop in which one thread serves many descriptors: it calls poll, then the handler of each descriptor that is ready.
//
// Thread rule: wake() from any thread; everything else from the thread that calls run_once().
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "reigen/base/deadline.h"
#include "reigen/base/unique_fd.h"

namespace reigen::net {

class EventLoop {
 public:
  using Handler = std::function<void(short events)>;  // `events`: poll's `revents`, possibly with POLLERR or POLLHUP

  EventLoop();

  // The caller still owns the descriptor, and calls forget() before closing it. Handlers may watch, change and forget
  // any descriptor, including their own.
  void watch(int fd, short events, Handler handler);
  void change(int fd, short events);  // if `events` is 0, only errors are reported
  void forget(int fd);

  // Waits until a descriptor is ready, wake() was called or the deadline passes. Then runs the handlers of the ready
  // descriptors. Cost: O(descriptors) a call.
  void run_once(const Deadline& deadline);

  void wake();

 private:
  struct Watch {
    std::uint64_t id;  // distinguishes a closed descriptor from a new one with the same number
    short events;
    std::shared_ptr<const Handler> handler;  // shared, because a handler may forget() itself while it runs
  };

  UniqueFd wake_fd_;
  std::uint64_t next_id_ = 0;
  std::unordered_map<int, Watch> watches_;
  bool changed_ = true;
  std::vector<pollfd> polled_;      // the last list for poll; rebuilt after a change
  std::vector<std::uint64_t> ids_;  // the id of each entry of polled_
};

}  // namespace reigen::net
