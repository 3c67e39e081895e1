// Sleeps for a backend that must be polled, because no event of that backend wakes the thread. The longer the Sleeper
// waits, the less often it polls.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace reigen::comm::control {

class Sleeper {
 public:
  // Returns when `ready` returns true, wake() is called or `limit` passes. `busy` says whether data moves. If data
  // moves, all ranks have made the call, so the wait is short and frequent polling pays. Otherwise a rank is late, and
  // the wait should take next to no processor time.
  void sleep(const std::function<bool()>& ready, const std::function<bool()>& busy, std::chrono::nanoseconds limit);
  void wake();

 private:
  std::mutex mutex_;
  std::condition_variable bell_;
  bool rung_ = false;
};

}  // namespace reigen::comm::control
