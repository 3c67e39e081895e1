// Sleeping where nobody wakes: an engine that can only be asked is asked, less and less often.
// Thread rule: one thread sleeps, any may wake it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace reigen::comm::control {

class Sleeper {
 public:
  // Returns when `ready` says so, wake() is called or `limit` passes. `busy`: data moves, so all ranks are there and
  // asking often pays; otherwise a rank is late, and waiting for it should take next to no processor time.
  void sleep(const std::function<bool()>& ready, const std::function<bool()>& busy, std::chrono::nanoseconds limit);
  void wake();

 private:
  std::mutex mutex_;
  std::condition_variable bell_;
  bool rung_ = false;
};

}  // namespace reigen::comm::control
