#include "fakes/cuda/queue.h"

#include <utility>

#include "base/philox.h"
#include "fakes/cuda/capture.h"
#include "fakes/cuda/stand_in.h"

namespace reigen::testing::stand_in {

namespace {

std::atomic<std::int64_t> stream_delay{0};  // microseconds
std::atomic<std::uint64_t> delay_seed{0};   // 0: all delays are the same
constexpr std::int64_t kComputeDelays = 50;

}  // namespace

void delay_streams(std::chrono::microseconds time, std::uint64_t seed) {
  stream_delay.store(time.count());
  delay_seed.store(seed);
}

Queue::Queue(int device)
    : device_(device),
      number_([] {
        static std::atomic<int> made{0};
        return ++made;
      }()),
      worker_([this] { run(); }) {}

Queue::~Queue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  worker_.join();
}

void Queue::push(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  if (auto* const work = recorded_.load(); work != nullptr && are_tasks_recorded()) work->push_back(task);
  tasks_.push_back(std::move(task));
  if (!working_) changed_.notify_all();  // a worker that works looks before it waits
}

bool Queue::is_idle() {
  std::lock_guard lock(mutex_);
  return tasks_.empty() && !working_;
}

void Queue::wait_until_idle() {
  std::unique_lock lock(mutex_);
  ++waiting_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return tasks_.empty() && !working_; });
  --waiting_;
}

std::chrono::microseconds Queue::next_delay() {
  const std::int64_t usual = stream_delay.load() * (computes_ ? kComputeDelays : 1);
  const std::uint64_t seed = delay_seed.load();
  if (seed == 0) return std::chrono::microseconds(usual);
  // Half of the tasks begin at once, the others up to four times as late.
  const std::uint64_t drawn = base::philox(seed + static_cast<std::uint64_t>(number_), tasks_done_++)[0];
  return std::chrono::microseconds(drawn % 2 == 0 ? 0 : usual * static_cast<std::int64_t>(drawn % 1024) / 256);
}

void Queue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const auto delay = next_delay();
    if (delay.count() > 0) changed_.wait_for(lock, delay, [&] { return stopping_ || waiting_ > 0; });
    auto task = std::move(tasks_.front());
    tasks_.pop_front();
    working_ = true;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    working_ = false;
    if (waiting_ > 0 && tasks_.empty()) changed_.notify_all();
  }
}

}  // namespace reigen::testing::stand_in
