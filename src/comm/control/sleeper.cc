#include "comm/control/sleeper.h"

#include <algorithm>
#include <thread>

#include "reigen/base/deadline.h"

namespace reigen::comm::control {

namespace {

constexpr auto kFirstSlice = std::chrono::microseconds(10);
constexpr auto kLastSlice = std::chrono::milliseconds(1);
constexpr auto kAskOften = std::chrono::milliseconds(2);
// While data moves, a thread sleeps a 64th of the time that it has waited. So it wakes at most 1.6 % late.
constexpr int kPartOfWait = 64;

}  // namespace

void Sleeper::sleep(const std::function<bool()>& ready, const std::function<bool()>& busy,
                    std::chrono::nanoseconds limit) {
  const auto begin = Deadline::Clock::now();
  const Deadline deadline = Deadline::after(limit);
  std::chrono::nanoseconds slice = kFirstSlice;
  while (!ready() && !deadline.expired()) {
    const bool moving = busy();
    const std::chrono::nanoseconds waited = Deadline::Clock::now() - begin;
    if (moving && waited < kAskOften) {
      std::this_thread::yield();
      continue;
    }
    std::unique_lock lock(mutex_);
    const bool rung = bell_.wait_for(lock, deadline.remaining(slice), [&] { return rung_; });
    rung_ = false;
    if (rung) return;
    slice = std::min<std::chrono::nanoseconds>(moving ? waited / kPartOfWait : slice + slice / 2, kLastSlice);
  }
}

void Sleeper::wake() {
  std::lock_guard lock(mutex_);
  rung_ = true;
  bell_.notify_all();
}

}  // namespace reigen::comm::control
