// One thread that serves many descriptors: poll, then a handler for each that is ready.
//
// Thread rule: wake() from any thread, everything else from the thread that calls run_once().
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
  using Handler = std::function<void(short events)>;  // what poll reported; POLLERR and POLLHUP come unasked

  EventLoop();

  // The descriptor stays the caller's, who calls forget() before closing it. Handlers may watch, change and forget any
  // descriptor, their own too.
  void watch(int fd, short events, Handler handler);
  void change(int fd, short events);  // 0: only errors
  void forget(int fd);

  // Waits until something is ready, wake() was called or the deadline passes, and runs the handlers of what is ready.
  // Cost: O(descriptors) a call.
  void run_once(const Deadline& deadline);

  void wake();

 private:
  struct Watch {
    std::uint64_t id;  // tells a closed descriptor from a new one with the same number
    short events;
    std::shared_ptr<const Handler> handler;  // shared: a handler may forget itself while it runs
  };

  UniqueFd wake_fd_;
  std::uint64_t next_id_ = 0;
  std::unordered_map<int, Watch> watches_;
  bool changed_ = true;
  std::vector<pollfd> polled_;      // of the last call; rebuilt when something changed
  std::vector<std::uint64_t> ids_;  // of polled_, one each
};

}  // namespace reigen::net
